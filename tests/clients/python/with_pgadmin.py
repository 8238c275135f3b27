"""pgAdmin: the SQL of its own templates, as it sends it when a person connects, opens the tree, reads a table's SQL, and looks at data."""

import os
import re
from collections import defaultdict

import jinja2
import psycopg
import psycopg.sql
from checks import Checks, equal
from psycopg.rows import dict_row

FOLDER = os.path.join(os.environ["ROLLOUTDB_CLIENTS_CACHE"], "pgadmin")
with open(os.path.join(FOLDER, "installed")) as pins:
    VERSION = pins.read().strip().partition("==")[2]
check = Checks("pgAdmin", VERSION)

# Folders of templates for servers of at least a version, the newest first.
VERSIONS = [
    (180000, "18_plus"),
    (170000, "17_plus"),
    (160000, "16_plus"),
    (150000, "15_plus"),
    (140000, "14_plus"),
    (130000, "13_plus"),
    (0, "default"),
]
# Numbers of what the server brings with it are not above this one.
LAST_SYSTEM_OID = 16383


class Templates(jinja2.BaseLoader):
    """`tables/sql/#160000#/nodes.sql` is the file of the newest folder that is not for a later server."""

    def __init__(self, folder):
        self.folders = [os.path.join(path, "templates") for path, folders, _ in os.walk(folder) if "templates" in folders]

    def get_source(self, environment, template):
        parts = template.split("#")
        names = [template]
        if len(parts) >= 3:
            before, number, after = parts[0].strip("/"), int(parts[-2]), parts[-1].strip("/")
            names = [f"{before}/{folder}/{after}" for at_least, folder in VERSIONS if at_least <= number]
        for name in names:
            for folder in self.folders:
                path = os.path.join(folder, name)
                if os.path.isfile(path):
                    with open(path) as file:
                        return file.read(), path, lambda: True
        raise jinja2.TemplateNotFound(template)


def identifier(_, *parts):
    def quoted(part):
        return part if re.fullmatch("[a-z_][a-z0-9_]*", part) else '"' + part.replace('"', '""') + '"'

    return ".".join(quoted(str(part)) for part in parts if str(part))


def environment():
    found = jinja2.Environment(loader=Templates(FOLDER), extensions=["jinja2.ext.do"])
    found.filters["qtLiteral"] = lambda value, conn, force_quote=False: psycopg.sql.Literal(value).as_string(None).strip()
    found.filters["qtIdent"] = found.filters["qtTypeIdent"] = identifier
    found.filters["hasAny"] = lambda data, *keys: any(key in data for key in keys)
    found.globals.update(_=lambda text: text, gettext=lambda text: text, conn="conn", server_type="pg")
    return found


ENVIRONMENT = environment()


def connect():
    return psycopg.connect(autocommit=True, row_factory=dict_row)


class Server:
    """A connection with the numbers of what pgAdmin has found so far."""

    def __init__(self):
        self.connection = connect()
        self.did = self.number("SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()")
        self.scid = self.number("SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pgadmin_shop'")
        self.tid = self.number(
            "SELECT oid FROM pg_catalog.pg_class WHERE relname = 'films' AND relnamespace = 'pgadmin_shop'::regnamespace"
        )

    def number(self, sql):
        row = self.connection.execute(sql).fetchone()
        return row and row["oid"]

    def render(self, template, **values):
        """`#` in the name stands for the version of the server."""
        template = template.replace("#", f"#{self.connection.info.server_version}#")
        known = {"did": self.did, "datlastsysoid": LAST_SYSTEM_OID, "last_system_oid": LAST_SYSTEM_OID}
        return ENVIRONMENT.get_template(template).render(**{**known, **values})

    def ask(self, template, **values):
        return self.connection.execute(self.render(template, **values)).fetchall()

    def only(self, template, **values):
        rows = self.ask(template, **values)
        equal(len(rows), 1)
        return rows[0]

    def names(self, template, key="name", **values):
        return [row[key] for row in self.ask(template, **values)]


SHOP = """
DROP SCHEMA IF EXISTS pgadmin_copy CASCADE;
DROP SCHEMA IF EXISTS pgadmin_shop CASCADE;
CREATE SCHEMA pgadmin_shop;
CREATE TABLE pgadmin_shop.films (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title character varying(80) NOT NULL,
    year integer DEFAULT 1970,
    price numeric(8,2),
    taxed numeric GENERATED ALWAYS AS (price * 1.2) STORED,
    tags text[],
    seen timestamp with time zone,
    CONSTRAINT films_one UNIQUE (title, year)
);
CREATE INDEX films_year ON pgadmin_shop.films USING btree (year);
CREATE VIEW pgadmin_shop.titles AS SELECT id, title FROM pgadmin_shop.films;
COMMENT ON SCHEMA pgadmin_shop IS 'what is sold';
COMMENT ON TABLE pgadmin_shop.films IS 'what was shown';
COMMENT ON COLUMN pgadmin_shop.films.title IS 'as printed';
COMMENT ON INDEX pgadmin_shop.films_year IS 'by year';
COMMENT ON VIEW pgadmin_shop.titles IS 'names only';
INSERT INTO pgadmin_shop.films (title, year, price) VALUES ('Jaws', 1975, 1.5), ('Duel', 1971, NULL), ('Alien', 1979, 2);
ANALYZE pgadmin_shop.films;
"""
COLUMNS = {
    "id": "bigint",
    "title": "character varying(80)",
    "year": "integer",
    "price": "numeric(8,2)",
    "taxed": "numeric",
    "tags": "text[]",
    "seen": "timestamp with time zone",
}


@check("a schema to look at")
def _():
    connect().execute(SHOP)


@check("connect")
def _():
    connection = connect()
    connection.execute(
        "SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings()"
        " WHERE name = 'bytea_output'; SET client_encoding='UTF8';"
    )
    assert "PostgreSQL" in connection.execute("SELECT version()").fetchone()["version"]
    database = connection.execute(
        "SELECT db.oid as did, db.datname, db.datallowconn, pg_encoding_to_char(db.encoding) AS serverencoding,"
        " has_database_privilege(db.oid, 'CREATE') as cancreate, datistemplate"
        " FROM pg_catalog.pg_database db WHERE db.datname = current_database()"
    ).fetchone()
    equal(
        (database["datallowconn"], database["serverencoding"], database["cancreate"], database["datistemplate"]),
        (True, "UTF8", True, False),
    )
    secured = connection.execute(
        "SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()"
    ).fetchone()
    equal((secured["gss_authenticated"], secured["encrypted"]), (False, False))
    user = connection.execute(
        "SELECT roles.oid as id, roles.rolname as name, roles.rolsuper as is_superuser,"
        " CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreaterole END as can_create_role,"
        " CASE WHEN 'pg_signal_backend'=ANY(ARRAY(WITH RECURSIVE cte AS ("
        " SELECT pg_roles.oid,pg_roles.rolname FROM pg_catalog.pg_roles WHERE pg_roles.oid = roles.oid UNION ALL"
        " SELECT m.roleid,pgr.rolname FROM cte cte_1 JOIN pg_catalog.pg_auth_members m ON m.member = cte_1.oid"
        " JOIN pg_catalog.pg_roles pgr ON pgr.oid = m.roleid) SELECT rolname FROM cte)) THEN True ELSE False END as can_signal_backend"
        " FROM pg_catalog.pg_roles as roles WHERE rolname = current_user"
    ).fetchone()
    equal((user["is_superuser"], user["can_create_role"], user["can_signal_backend"]), (True, True, False))
    server = Server()
    recovery = server.only("connect/sql/#/check_recovery.sql")
    equal((recovery["inrecovery"], recovery["isreplaypaused"]), (False, False))
    equal([row["type"] for row in server.ask("servers/sql/#/replication_type.sql")], [None])


@check("databases")
def _():
    server = Server()
    # The tree has those whose number is not one of the server's own.
    nodes = server.ask("databases/sql/#/nodes.sql", did=None)
    equal([(row["did"], row["datallowconn"]) for row in nodes if row["name"] == os.environ["PGDATABASE"]], [(server.did, True)])
    found = server.only("databases/sql/#/properties.sql")
    equal(
        (found["name"], found["encoding"], found["datallowconn"], found["spcname"]), (os.environ["PGDATABASE"], "UTF8", True, "pg_default")
    )
    equal("UTF8" in server.names("databases/sql/#/get_encodings.sql", key="encoding"), True)
    server.ask("databases/sql/#/get_ctypes.sql")
    server.ask("databases/sql/#/acl.sql")
    server.ask("databases/sql/#/get_variables.sql")
    equal(len(server.ask("databases/sql/#/stats.sql")), 1)


@check("roles and tablespaces")
def _():
    server = Server()
    with_login = {row["rolname"]: row["rolcanlogin"] for row in server.ask("roles/sql/#/nodes.sql")}
    equal(with_login[os.environ["PGUSER"]], True)
    rid = server.number("SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user")
    found = server.only("roles/sql/#/properties.sql", rid=rid)
    equal((found["rolname"], found["rolsuper"], found["rolmembership"]), (os.environ["PGUSER"], True, []))
    server.ask("roles/sql/#/permission.sql", rid=rid)
    equal("pg_default" in server.names("tablespaces/sql/#/nodes.sql"), True)
    equal(server.only("tablespaces/sql/#/properties.sql", tsid=1663)["name"], "pg_default")
    server.ask("tablespaces/sql/#/acl.sql", tsid=1663)


@check("schemas and catalogs")
def _():
    server = Server()
    equal({row["name"]: row["description"] for row in server.ask("schemas/pg/#/sql/nodes.sql")}["pgadmin_shop"], "what is sold")
    found = server.only("schemas/pg/#/sql/properties.sql", scid=server.scid)
    equal(
        (found["name"], found["namespaceowner"], found["description"], found["can_create"]),
        ("pgadmin_shop", os.environ["PGUSER"], "what is sold", True),
    )
    for template in ("acl", "defacl", "is_catalog", "get_name"):
        server.ask(f"schemas/pg/#/sql/{template}.sql", scid=server.scid)
    equal(server.names("catalog/pg/#/sql/nodes.sql"), ["ANSI (information_schema)", "PostgreSQL Catalog (pg_catalog)"])
    found = server.ask(
        "catalog_object/sql/pg/#/nodes.sql", scid=server.number("SELECT oid FROM pg_namespace WHERE nspname = 'information_schema'")
    )
    equal("columns" in [row["name"] for row in found], True)


@check("tables")
def _():
    server = Server()
    equal(server.only("tables/sql/#/count.sql", scid=server.scid)["count"], 1)
    node = server.only("tables/sql/#/nodes.sql", scid=server.scid)
    equal((node["name"], node["description"], node["triggercount"], node["is_partitioned"]), ("films", "what was shown", 0, False))
    found = server.only("tables/sql/#/properties.sql", scid=server.scid, tid=server.tid)
    equal((found["name"], found["schema"], found["relowner"]), ("films", "pgadmin_shop", os.environ["PGUSER"]))
    equal((found["description"], found["conname"], found["conkey"]), ("what was shown", "films_pkey", [1]))
    # The estimate of rows, after ANALYZE
    equal(found["reltuples"], 3)
    equal(found["amname"], found["default_amname"])
    equal((found["coll_inherits"], found["is_sys_table"], found["relpersistence"], found["rlspolicy"]), ([], False, False, False))
    server.ask("tables/sql/#/acl.sql", scid=server.scid, tid=server.tid)
    equal(server.only("tables/sql/#/stats.sql", tid=server.tid)["Live tuples"] >= 3, True)
    equal(server.names("tables/sql/#/coll_table_stats.sql", key="Table name", schema_name="pgadmin_shop"), ["films"])
    equal(server.only("tables/sql/#/get_table_row_count.sql", data={"schema": "pgadmin_shop", "name": "films"})["count"], "3")
    for template in ("get_access_methods", "get_collation", "get_oftype", "get_op_class", "get_relations"):
        server.ask(f"tables/sql/#/{template}.sql")


@check("columns")
def _():
    server = Server()
    nodes = server.ask("columns/sql/#/nodes.sql", tid=server.tid)
    equal({row["name"]: row["displaytypname"] for row in nodes}, COLUMNS)
    equal([row["name"] for row in nodes if row["not_null"]], ["id", "title"])
    equal([row["name"] for row in nodes if row["has_default_val"]], ["id", "year", "taxed"])
    equal({row["name"]: row["description"] for row in nodes}["title"], "as printed")
    found = {row["name"]: row for row in server.ask("columns/sql/#/properties.sql", tid=server.tid)}
    equal([row["cltype"] for row in found.values()], list(COLUMNS.values()))
    equal((found["year"]["defval"], found["title"]["defval"]), ("1970", None))
    # `i` is for identity, `g` for generated.
    equal({name: row["colconstype"] for name, row in found.items() if row["colconstype"] != "n"}, {"id": "i", "taxed": "g"})
    equal((found["id"]["attidentity"], found["id"]["seqstart"], found["id"]["seqincrement"], found["id"]["seqmax"]), ("a", 1, 1, 2**63 - 1))
    equal(found["taxed"]["genexpr"].strip("()"), "price * 1.2")
    equal((found["tags"]["elemoid"], found["price"]["atttypmod"], found["title"]["attlen"]), (25, 524294, -1))
    equal(server.only("columns/sql/#/properties.sql", tid=server.tid, clid=2)["description"], "as printed")
    equal(server.only("columns/sql/#/count.sql", tid=server.tid)["count"], len(COLUMNS))
    for template in ("acl", "get_collations", "get_parent", "get_inherited_tables"):
        server.ask(f"columns/sql/#/{template}.sql", tid=server.tid, clid=2)
    server.ask("columns/sql/#/stats.sql", schema="pgadmin_shop", table="films", column="title")


@check("primary key and unique constraint")
def _():
    server = Server()
    for kind, name, columns in (("p", "films_pkey", ["id"]), ("u", "films_one", ["title", "year"])):
        node = server.only("index_constraint/sql/#/nodes.sql", tid=server.tid, constraint_type=kind)
        equal(node["name"], name)
        found = server.only("index_constraint/sql/#/properties.sql", tid=server.tid, cid=node["oid"], constraint_type=kind)
        equal((found["name"], found["col_count"], found["condeferrable"]), (name, len(columns), False))
        keys = server.ask("index_constraint/sql/#/get_constraint_cols.sql", cid=node["oid"], colcnt=len(columns))
        equal([row["column"] for row in keys], columns)
        equal(server.ask("index_constraint/sql/#/get_constraint_include.sql", cid=node["oid"]), [])
        server.only("index_constraint/sql/#/stats.sql", cid=node["oid"])
    equal(
        sorted(server.names("index_constraint/sql/#/get_indices.sql", key="relname", tid=server.tid)),
        ["films_one", "films_pkey", "films_year"],
    )


@check("indexes")
def _():
    server = Server()
    # Those of constraints are not among them.
    node = server.only("indexes/sql/#/nodes.sql", tid=server.tid)
    equal((node["name"], node["description"]), ("films_year", "by year"))
    found = server.only("indexes/sql/#/properties.sql", tid=server.tid, idx=node["oid"])
    equal(
        (found["name"], found["amname"], found["indisunique"], found["indisprimary"], found["indisvalid"]),
        ("films_year", "btree", False, False, True),
    )
    equal((found["tabname"], found["indnatts"], found["description"], found["indkey"]), ("films", 1, "by year", "3"))
    columns = server.ask("indexes/sql/#/column_details.sql", idx=node["oid"])
    equal([(row["attnum"], row["attdef"], row["options"], row["is_exp"]) for row in columns], [(1, "year", ["ASC", "NULLS LAST"], False)])
    equal(server.ask("indexes/sql/#/include_details.sql", idx=node["oid"]), [])
    equal("btree" in server.names("indexes/sql/#/get_am.sql", key="amname"), True)
    server.only("indexes/sql/#/stats.sql", idx=node["oid"])
    equal(
        server.names("indexes/sql/#/coll_stats.sql", key="Index name", schema="pgadmin_shop", table="films"), ["films_pkey", "films_year"]
    )


@check("what a table has none of")
def _():
    server = Server()
    for folder in (
        "check_constraint/sql/#",
        "foreign_key/sql/#",
        "exclusion_constraint/sql/#",
        "triggers/sql/pg/#",
        "rules/sql",
        "row_security_policies/sql/#",
    ):
        for template in ("nodes", "properties"):
            equal(server.ask(f"{folder}/{template}.sql", tid=server.tid, scid=server.scid), [])
    equal(server.ask("partitions/sql/pg/#/nodes.sql", tid=server.tid), [])


@check("views")
def _():
    server = Server()
    node = server.only("views/pg/#/sql/nodes.sql", scid=server.scid)
    equal((node["name"], node["comment"]), ("titles", "names only"))
    found = server.only("views/pg/#/sql/properties.sql", vid=node["oid"], scid=server.scid)
    equal(
        (found["name"], found["schema"], found["owner"], found["comment"]), ("titles", "pgadmin_shop", os.environ["PGUSER"], "names only")
    )
    definition = " ".join(found["definition"].replace("films.", "").split())
    assert re.fullmatch("SELECT id, title FROM (pgadmin_shop.)?films;", definition), definition
    columns = server.ask("columns/sql/#/nodes.sql", tid=node["oid"])
    equal({row["name"]: row["displaytypname"] for row in columns}, {"id": "bigint", "title": "character varying(80)"})
    server.ask("views/pg/#/sql/acl.sql", vid=node["oid"])
    equal(server.ask("mviews/pg/#/sql/nodes.sql", scid=server.scid), [])


@check("sequences")
def _():
    server = Server()
    # Of the identity column
    node = server.only("sequences/sql/#/nodes.sql", scid=server.scid)
    equal(node["name"], "films_id_seq")
    found = server.only("sequences/sql/#/properties.sql", scid=server.scid, seid=node["oid"])
    equal((found["schema"], found["seqowner"]), ("pgadmin_shop", os.environ["PGUSER"]))
    server.ask("sequences/sql/#/acl.sql", scid=server.scid, seid=node["oid"])


@check("functions and types")
def _():
    server = Server()
    for kind in ("functions", "procedures", "trigger_functions"):
        equal(server.ask(f"{kind}/pg/sql/#/node.sql", scid=server.scid), [])
    catalog = server.number("SELECT oid FROM pg_namespace WHERE nspname = 'pg_catalog'")
    functions = {row["name"]: row for row in server.ask("functions/pg/sql/#/node.sql", scid=catalog)}
    equal(functions["quote_ident(text)"]["lanname"], "internal")
    fnid = functions["quote_ident(text)"]["oid"]
    found = server.only("functions/pg/sql/#/properties.sql", fnid=fnid, scid=catalog)
    equal((found["name"], found["prorettypename"], found["proretset"], found["lanname"]), ("quote_ident", "text", False, "internal"))
    assert "quote_ident" in server.only("functions/pg/sql/#/get_definition.sql", fnid=fnid, scid=catalog)["func_def"]
    server.ask("functions/pg/sql/#/acl.sql", fnid=fnid)
    for template in ("get_languages", "get_types"):
        server.ask(f"functions/pg/sql/#/{template}.sql")
    equal(server.ask("aggregates/sql/#/nodes.sql", scid=server.scid), [])
    equal(server.ask("types/pg/sql/#/nodes.sql", scid=server.scid), [])
    equal(server.ask("domains/sql/#/node.sql", scid=server.scid), [])
    # What the dialog of a new column offers
    condition = ENVIRONMENT.from_string("{% include 'tables/sql/#' ~ version ~ '#/get_types_where_condition.sql' %}")
    condition = condition.render(version=server.connection.info.server_version, show_system_objects=False)
    offered = {row["typname"]: row["oid"] for row in server.ask("datatype/sql/#/get_types.sql", condition=condition, add_serials=True)}
    equal(
        {name: offered.get(name) for name in ("bigint", "text", "jsonb", "integer[]")},
        {"bigint": 20, "text": 25, "jsonb": 3802, "integer[]": 1007},
    )


@check("other kinds of objects")
def _():
    server = Server()
    for template, values in {
        "casts/sql/#/nodes.sql": {},
        "collations/sql/#/nodes.sql": {"scid": server.scid},
        "event_triggers/sql/#/nodes.sql": {},
        "extensions/sql/extensions.sql": {},
        "extensions/sql/properties.sql": {},
        "foreign_data_wrappers/sql/#/properties.sql": {},
        "foreign_servers/sql/#/properties.sql": {},
        "foreign_tables/sql/#/node.sql": {"scid": server.scid},
        "fts_configurations/sql/#/nodes.sql": {"scid": server.scid},
        "fts_dictionaries/sql/#/nodes.sql": {"scid": server.scid},
        "fts_parsers/sql/#/nodes.sql": {"scid": server.scid},
        "fts_templates/sql/#/nodes.sql": {"scid": server.scid},
        "operators/sql/#/nodes.sql": {"scid": server.scid},
        "publications/pg/#/sql/nodes.sql": {},
        "subscriptions/sql/#/nodes.sql": {},
    }.items():
        server.ask(template, **values)
    server.ask("languages/sql/#/properties.sql")


def columns_as_created(server):
    columns = server.ask("columns/sql/#/properties.sql", tid=server.tid)
    return [{**row, "attacl": [], "seclabels": []} for row in columns]


def key(server, kind):
    node = server.only("index_constraint/sql/#/nodes.sql", tid=server.tid, constraint_type=kind)
    found = server.only("index_constraint/sql/#/properties.sql", tid=server.tid, cid=node["oid"], constraint_type=kind)
    columns = server.ask("index_constraint/sql/#/get_constraint_cols.sql", cid=node["oid"], colcnt=found["col_count"])
    return {**found, "columns": columns, "include": []}


@check("the SQL of a table makes the table")
def _():
    server = Server()
    table = server.only("tables/sql/#/properties.sql", scid=server.scid, tid=server.tid)
    data = {**table, "schema": "pgadmin_copy", "columns": columns_as_created(server), "relacl": [], "seclabels": []}
    data.update(
        primary_key=[key(server, "p")], unique_constraint=[key(server, "u")], foreign_key=[], check_constraint=[], exclude_constraint=[]
    )
    sql = server.render("tables/sql/#/create.sql", data=data, is_sql=True)
    server.connection.execute("DROP SCHEMA IF EXISTS pgadmin_copy CASCADE; CREATE SCHEMA pgadmin_copy")
    server.connection.execute(sql)
    shop = {row["name"]: row for row in columns_as_created(server)}
    shop_keys = key(server, "p")["columns"], key(server, "u")["columns"]
    server.tid = server.number(
        "SELECT oid FROM pg_catalog.pg_class WHERE relname = 'films' AND relnamespace = 'pgadmin_copy'::regnamespace"
    )
    copy = {row["name"]: row for row in columns_as_created(server)}
    for name, row in shop.items():
        kept = ("cltype", "attnotnull", "defval", "colconstype", "attidentity", "genexpr", "collspcname", "description")
        equal({part: copy[name][part] for part in kept}, {part: row[part] for part in kept})
    equal((key(server, "p")["columns"], key(server, "u")["columns"]), shop_keys)


@check("view data")
def _():
    server = Server()
    equal(server.only("sqleditor/sql/#/objectname.sql", obj_id=server.tid), {"nspname": "pgadmin_shop", "relname": "films"})
    columns = server.ask("sqleditor/sql/#/get_columns.sql", obj_id=server.tid)
    equal(sorted((row["attnum"], row["attname"], row["typname"]) for row in columns)[1:3], [(2, "title", "varchar"), (3, "year", "int4")])
    keys = server.ask("sqleditor/sql/#/primary_keys.sql", obj_id=server.tid)
    equal([(row["attname"], row["typname"]) for row in keys], [("id", "int8")])
    table = {"nsp_name": "pgadmin_shop", "object_name": "films", "has_oids": False}
    sorting = [{"name": "year", "order": "desc", "order_null": ""}]
    rows = server.ask("sqleditor/sql/#/objectquery.sql", limit=2, sql_filter="year > 1970", data_sorting=sorting, **table)
    equal([row["title"] for row in rows], ["Alien", "Jaws"])
    equal(len(server.ask("sqleditor/sql/#/objectquery.sql", limit=-1, sql_filter=None, data_sorting=None, **table)), 3)
    # A row is changed, added and taken away in the grid.
    saved = {
        "data_to_be_saved": {"title": "Jaws 2"},
        "pgadmin_alias": {"title": "a", "year": "b"},
        "type_cast_required": {},
        "data_type": {},
    }
    jaws = [row["id"] for row in rows if row["title"] == "Jaws"][0]
    update = server.render("sqleditor/sql/#/update.sql", primary_keys={"id": jaws}, **saved, **table)
    server.connection.execute(update, {"a": "Jaws 2"})
    saved["data_to_be_saved"] = {"title": "Heat", "year": 1995}
    insert = server.render("sqleditor/sql/#/insert.sql", pk_names="id", **saved, **table)
    added = server.connection.execute(insert, {"a": "Heat", "b": 1995}).fetchone()["id"]
    select = server.render("sqleditor/sql/#/select.sql", primary_keys={"id": "int8"}, pgadmin_alias={"id": "k"}, **table)
    equal(server.connection.execute(select, {"k": added}).fetchone()["title"], "Heat")
    delete = server.render("sqleditor/sql/#/delete.sql", no_of_keys=1, primary_key_labels=["id"], data=[{"id": added}], **table)
    equal(server.connection.execute(delete).rowcount, 1)
    rows = server.ask("sqleditor/sql/#/objectquery.sql", limit=10, sql_filter=None, data_sorting=sorting, **table)
    equal([row["title"] for row in rows], ["Alien", "Jaws 2", "Duel"])


@check("dependents and dependencies")
def _():
    server = Server()
    where = f"WHERE dep.refobjid={server.tid}::OID"
    names = {(row["type"][:1], row["refname"]) for row in server.ask("depends/pg/#/dependents.sql", where_clause=where)}
    equal({("i", "films_year"), ("S", "films_id_seq"), ("C", "films_pkey"), ("C", "films_one")} - names, set())
    vid = server.only("views/pg/#/sql/nodes.sql", scid=server.scid)["oid"]
    found = server.ask("depends/pg/#/dependencies.sql", where_clause=f"WHERE dep.objid={vid}::OID", object_id=vid)
    equal({row["refname"].split(".")[0] for row in found if row["type"].startswith("r")}, {"films"})


@check("dashboard")
def _():
    server = Server()
    pid = server.connection.execute("SELECT pg_backend_pid() AS pid").fetchone()["pid"]
    own = [row for row in server.ask("dashboard/sql/#/activity.sql") if row["pid"] == pid]
    equal(len(own), 1)
    equal((own[0]["state"], own[0]["blocking_pids"]), ("active", ""))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+", own[0]["backend_start"]), own[0]["backend_start"]
    charts = server.ask(
        "dashboard/sql/#/dashboard_stats.sql", chart_names=["session_stats", "tps_stats", "ti_stats", "to_stats", "bio_stats"]
    )
    of_sessions = {row["chart_name"]: row["chart_data"] for row in charts}["session_stats"]
    equal(sorted(of_sessions), ["Active", "Idle", "Total"])
    assert of_sessions["Total"] >= of_sessions["Active"] >= 1, of_sessions
    equal(server.ask("dashboard/sql/#/prepared.sql"), [])
    server.ask("dashboard/sql/#/locks.sql")
    assert any(row["name"] == "search_path" for row in server.ask("dashboard/sql/#/config.sql"))
    server.ask("dashboard/sql/#/replication_slots.sql")
    server.ask("dashboard/sql/#/replication_stats.sql")


@check("search of objects")
def _():
    server = Server()
    all_kinds = defaultdict(lambda: True)
    values = {"search_text": "%films%", "obj_type": "all", "show_system_objects": False, "skip_obj_type": [], "show_node_prefs": all_kinds}
    found = [row for row in server.ask("search_objects/sql/pg/#/search.sql", **values) if row["schema_name"] == "pgadmin_shop"]
    expected = {
        ("table", "films"),
        ("index", "films_year"),
        ("primary_key", "films_pkey"),
        ("unique_constraint", "films_one"),
        ("sequence", "films_id_seq"),
    }
    equal({(row["obj_type"], row["obj_name"]) for row in found}, expected)


@check("completion")
def _():
    server = Server()
    schemas = {"schema_names": "'pgadmin_shop'"}
    path = "sqlautocomplete/sql/#"
    equal("pgadmin_shop" in [next(iter(row.values())) for row in server.ask(f"{path}/schema.sql")], True)
    equal(server.names(f"{path}/tableview.sql", key="object_name", **{**schemas, "object_name": "tables"}), ["films"])
    columns = server.connection.execute(server.render(f"{path}/columns.sql", object_name="table", **schemas)).fetchall()
    equal({row["column_name"]: row["has_default"] for row in columns}["year"], True)
    for template in ("databases", "datatypes", "foreign_keys", "functions"):
        server.ask(f"{path}/{template}.sql", **schemas)
    assert "SELECT" in {next(iter(row.values())) for row in server.ask(f"{path}/keywords.sql", upper_case=True)}


@check("grant wizard")
def _():
    server = Server()
    equal(server.names("grant_wizard/pg/#/sql/table.sql", node_id=server.scid), ["films"])
    equal(server.names("grant_wizard/pg/#/sql/view.sql", node_id=server.scid, node_type="v", ntype="View"), ["titles"])
    server.ask("grant_wizard/pg/#/sql/get_schemas.sql", nspid=server.scid)


check.run()
