"""Random INSERT, UPDATE, DELETE, MERGE and TRUNCATE compared with SQLite: `dml_reference.py HOST PORT [--statements N] [--seed S]`.

After every statement all tables hold the same rows as the reference, the counts and the rows of RETURNING are the same, and what
fails there fails here, with its SQLSTATE and nothing written. Where something differs, the smallest statements found that still do
are printed and the exit status is 1. Errors listed in `KNOWN_REFUSALS` are only counted, unless --strict is given.

The reference is SQL's own definition: SELECTs in SQLite, over the tables as they were, find the rows and their new values; all are written; then the
constraints are checked. SQLite's UPDATE would check keys row by row and read rows that it has just written, and it has no MERGE.

The server may be PostgreSQL too, which checks this test; statements that PostgreSQL decides by the order of its rows are then left out.
"""

import argparse
import dataclasses
import decimal
import itertools
import random
import re
import sqlite3
import sys
import time
from collections import Counter

import psycopg

EPISODE = 120  # statements before the tables are made anew
SHRINK_SECONDS = 60
FEW_ROWS, MANY_ROWS = 4, 60
WORDS = ["x", "y", "xy", "z", "it's", "", "a_b", "5%", "Ü"]
DIVISION = "100 / {}"
# Errors of statements that should run, by their message: counted and listed at the end; with --strict they are differences.
KNOWN_REFUSALS = {
    "bind message supplies": "parameters in RETURNING are not counted",
    "Cannot infer common string type|Cannot coerce arithmetic|not supported for Null": "an operator between parameters only forgets their types",
    "evaluated before the subquery was executed|can only be used in Projection, Filter, TableScan": "a subquery in VALUES",
    "Inconsistent types in ScalarValue": "different kinds of text in VALUES",
    "array_has does not support|'(cardinality|array_position)' function": "= ANY of a parameter that is an array of texts",
    "null_aware anti join only supports": "NOT IN with a correlated subquery",
    "Correlated scalar subquery": "a correlated scalar subquery that is not an aggregate, or not in a simple place",
    "No field named|Schema contains qualified field name|require unique expression names": "correlation over two levels, and others",
    "Input field name": "plans whose join is turned round",
    "single expression required": "NOT IN with a correlated subquery with LIMIT",
    "Ambiguous reference to unqualified field": "MERGE: plain names of the source under WHEN NOT MATCHED",
    "field nullability at index": "DISTINCT with IS TRUE",
    "declared as non-nullable but contains null": "a scalar subquery without rows",
}
NOT_NULL, UNIQUE, TWICE, DIVISION_BY_ZERO, UNSUPPORTED = "23502", "23505", "21000", "22012", "0A000"


class Table:
    def __init__(self, name, columns, key=(), not_null=(), defaults=None):
        self.name, self.key, self.defaults = name, key, defaults or {}
        self.columns = {column: kind_of(type_name) for column, type_name in columns.items()}
        self.types, self.not_null = columns, (*key, *not_null)

    def create(self, is_reference=False, key_option=""):
        columns = [f"{column} {type_name}" for column, type_name in self.types.items()]
        if not is_reference:
            columns = [
                column + (" NOT NULL" if name in self.not_null and name not in self.key else "")
                + (f" DEFAULT {literal(self.defaults[name])}" if name in self.defaults else "")
                for column, name in zip(columns, self.types)
            ]
            columns += [f"PRIMARY KEY ({', '.join(self.key)}){key_option}"] if self.key else []
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"


def kind_of(type_name):
    kinds = {"text": "text", "boolean": "boolean", "double precision": "float", "real": "float"}
    return kinds.get(type_name, "integer")


TABLES = [
    Table(
        "dml_a",
        {"id": "bigint", "n": "integer", "w": "text", "f": "double precision", "ok": "boolean", "must": "text"},
        key=("id",), not_null=("must",), defaults={"ok": True, "must": "none"},
    ),
    Table(
        "dml_b", {"k1": "integer", "k2": "text", "n": "bigint", "w": "text", "ok": "boolean"},
        key=("k1", "k2"), not_null=("n",), defaults={"n": 7},
    ),
    Table("dml_c", {"id": "text", "n": "integer", "w": "text", "f": "real"}, key=("id",), defaults={"f": 0.25}),
    Table("dml_loose", {"n": "integer", "w": "text"}),
]
EMPTY = Table("dml_empty", {"n": "integer", "w": "text"})
BY_NAME = {table.name: table for table in [*TABLES, EMPTY]}


# SQL as trees, so that it can be written for two databases, with parameters or without, and made smaller.


@dataclasses.dataclass(frozen=True)
class Tree:
    """A piece of SQL of some kind: a type's name for expressions; `{}` in the template are its parts. `sqlite`: what SQLite calls it."""

    kind: str
    template: str
    parts: tuple = ()
    sqlite: str | None = None


@dataclasses.dataclass(frozen=True)
class Constant:
    """A literal, or a parameter."""

    kind: str
    value: object
    is_inline: bool = False  # never a parameter


DEFAULT = Tree("default", "DEFAULT")
NULL_CONDITION = Tree("boolean", "NULL")


def tree(kind, template, *parts, sqlite=None):
    if kind == "boolean":
        template, sqlite = f"({template})", sqlite and f"({sqlite})"
    return Tree(kind, template, parts, sqlite)


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"({value})" if value < 0 else str(value)


class Writer:
    """Writes trees as text; with `parameters` its constants are collected there."""

    def __init__(self, parameters=None, for_sqlite=False):
        self.parameters, self.for_sqlite = parameters, for_sqlite

    def __call__(self, part):
        if isinstance(part, str):
            return part
        if isinstance(part, Constant):
            if self.for_sqlite and isinstance(part.value, list):
                return f"({', '.join(map(literal, part.value))})"
            if self.parameters is None or part.is_inline:
                return literal(part.value)
            self.parameters.append(part.value)
            return f"${len(self.parameters)}"
        template = part.sqlite if self.for_sqlite and part.sqlite else part.template
        return template.format(*[self(inner) for inner in part.parts])

    def list(self, parts):
        return ", ".join(self(part) for part in parts)

    def assignments(self, pairs):
        return ", ".join(f"{column} = {self(value)}" for column, value in pairs)


sqlite_text = Writer(for_sqlite=True)


def variants(value, is_optional=False):
    """The same with one thing taken away."""
    if is_optional and value is not None:
        yield None
    if isinstance(value, Tree):
        yield from (part for part in value.parts if not isinstance(part, str) and part.kind == value.kind)
        if value.parts and value.kind == "boolean":
            yield from (Tree("boolean", "true"), Tree("boolean", "false"))
        if value.parts and value.kind == "integer":
            yield Constant("integer", 1)
        for position, part in enumerate(value.parts):
            for variant in variants(part):
                yield dataclasses.replace(value, parts=(*value.parts[:position], variant, *value.parts[position + 1 :]))
    elif isinstance(value, (list, tuple)):
        for position, element in enumerate(value):
            before, after = value[:position], value[position + 1 :]
            if isinstance(value, list) and len(value) > 1:
                yield before + after
            for variant in variants(element):
                yield before + type(value)([variant]) + after
    elif dataclasses.is_dataclass(value) and not isinstance(value, Constant):
        for field in dataclasses.fields(value):
            for variant in variants(getattr(value, field.name), field.default is None):
                yield dataclasses.replace(value, **{field.name: variant})


def inline(constant):
    return dataclasses.replace(constant, is_inline=True)


def with_constants(value, change):
    if isinstance(value, Constant):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(with_constants(element, change) for element in value)
    if dataclasses.is_dataclass(value):
        fields = {field.name: with_constants(getattr(value, field.name), change) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


# The reference.


class ServerGone(Exception):
    """The connection was lost."""


class Undecided(Exception):
    """The standard does not say what this statement does, or the reference cannot tell."""


@dataclasses.dataclass
class Outcome:
    count: int = -1
    rows: list | None = None
    errors: set = dataclasses.field(default_factory=set)
    message: str = ""


class Reference:
    """The tables in SQLite, without constraints. Rows are known by their `rowid`."""

    def __init__(self):
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.execute("PRAGMA case_sensitive_like = ON")
        for table in BY_NAME.values():
            self.connection.execute(table.create(is_reference=True))

    def query(self, text, values=()):
        return self.connection.execute(text, values).fetchall()

    def contents(self, table):
        return typed(self.query(f"SELECT * FROM {table.name}"), table.columns.values())

    def insert(self, table, row):
        """`row`: by column. Returns the rowid."""
        marks = ", ".join("?" * len(table.columns))
        return self.connection.execute(f"INSERT INTO {table.name} VALUES ({marks})", [row[column] for column in table.columns]).lastrowid

    def update(self, table, rowid, columns, values):
        assignments = ", ".join(f"{column} = ?" for column in columns)
        self.connection.execute(f"UPDATE {table.name} SET {assignments} WHERE rowid = ?", (*values, rowid))

    def delete(self, table, rowids):
        self.connection.executemany(f"DELETE FROM {table.name} WHERE rowid = ?", [(rowid,) for rowid in rowids])

    def returned(self, table, alias, returning, rowids):
        if returning is None:
            return None
        items = ", ".join(sqlite_text(item) for item, _ in returning)
        numbers = ", ".join(map(str, rowids))
        rows = self.query(f"SELECT {items} FROM {table.name} AS {alias} WHERE {alias}.rowid IN ({numbers})")
        kinds = [kind for _, kind in returning]
        return typed(rows, table.columns.values() if kinds == ["*"] else kinds)

    def rowid(self, table, row):
        """Of the row with this one's key."""
        if not table.key or any(row[column] is None for column in table.key):
            return None
        conditions = " AND ".join(f"{column} = ?" for column in table.key)
        found = self.query(f"SELECT rowid FROM {table.name} WHERE {conditions}", [row[column] for column in table.key])
        return found[0][0] if found else None

    def violations(self, table):
        found = set()
        if table.not_null and self.query(f"SELECT 1 FROM {table.name} WHERE " + " OR ".join(f"{column} IS NULL" for column in table.not_null)):
            found.add(NOT_NULL)
        keys = ", ".join(table.key)
        if table.key and self.query(f"SELECT 1 FROM {table.name} GROUP BY {keys} HAVING count(*) > 1"):
            found.add(UNIQUE)
        return found

    def run(self, statement):
        self.connection.execute("BEGIN")
        try:
            outcome = statement.run(self)
            if getattr(statement, "table", None) and not isinstance(statement, Select):
                outcome.errors |= self.violations(BY_NAME[statement.table])
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("ROLLBACK" if outcome.errors else "COMMIT")
        return outcome


def typed(rows, kinds):
    """Rows with the values that PostgreSQL would give for these kinds, in an order that depends on them only."""
    kinds = list(kinds)
    return in_order([tuple(plain(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows])


def plain(value, kind):
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    return float(value) if kind == "float" or isinstance(value, decimal.Decimal) and value % 1 else int(value) if kind == "integer" else value


def in_order(rows):
    return sorted(rows, key=lambda row: [(value is not None, "" if value is None else value) for value in row])


# Statements. A field whose default is None may be left out.


def returning_text(write, returning):
    return "" if returning is None else " RETURNING " + ", ".join(write(item) for item, _ in returning)


def default(table, column):
    return literal(table.defaults.get(column))


def named(table, alias):
    return table if alias == table else f"{table} AS {alias}"


@dataclasses.dataclass(frozen=True)
class Conflict:
    """DO NOTHING without `assignments`."""

    assignments: list | None = None
    where: object = None
    has_target: bool = True

    def text(self, write, table):
        target = f" ({', '.join(table.key)})" if self.has_target else ""
        if self.assignments is None:
            return f" ON CONFLICT{target} DO NOTHING"
        where = "" if self.where is None else f" WHERE {write(self.where)}"
        return f" ON CONFLICT{target} DO UPDATE SET {write.assignments(self.assignments)}{where}"


@dataclasses.dataclass(frozen=True)
class Insert:
    table: str
    columns: tuple | None
    source: object  # a query, or a list of rows
    conflict: Conflict | None = None
    returning: list | None = None

    def text(self, write):
        columns = "" if self.columns is None else f" ({', '.join(self.columns)})"
        conflict = "" if self.conflict is None else self.conflict.text(write, BY_NAME[self.table])
        source = self.source_text(write)
        return f"INSERT INTO {self.table}{columns} {source}{conflict}{returning_text(write, self.returning)}"

    def source_text(self, write):
        if not isinstance(self.source, list):
            return write(self.source)
        return "VALUES " + ", ".join(f"({write.list(row)})" for row in self.source)

    def run(self, reference):
        table, outcome = BY_NAME[self.table], Outcome()
        rows = self.rows(reference, table)
        if self.conflict is None:
            written = [reference.insert(table, row) for row in rows]
        else:
            written = self.upsert(reference, table, rows, outcome)
        outcome.count = len(written)
        if not outcome.errors:
            outcome.rows = reference.returned(table, self.table, self.returning, written)
        return outcome

    def rows(self, reference, table):
        columns = self.columns or list(table.columns)
        if isinstance(self.source, list):
            defaults = [[default(table, column) if value == DEFAULT else value for column, value in zip(columns, row)] for row in self.source]
            found = [reference.query(f"SELECT {sqlite_text.list(row)}")[0] for row in defaults]
        else:
            found = reference.query(sqlite_text(self.source))
        unnamed = {column: table.defaults.get(column) for column in table.columns if column not in columns}
        return [dict(zip(columns, row, strict=True)) | unnamed for row in found]

    def upsert(self, reference, table, rows, outcome):
        def key_of(row):
            return tuple(row[column] for column in table.key)

        if any(row[column] is None for row in rows for column in table.not_null):
            outcome.errors.add(NOT_NULL)
        is_ordered = isinstance(self.source, list)
        olds = [reference.rowid(table, row) for row in rows]
        is_update = self.conflict.assignments is not None
        new_values = [self.new_values(reference, table, row, old) if is_update and old is not None else None for row, old in zip(rows, olds)]
        written, inserted, updated = [], {}, set()
        for row, old, values in zip(rows, olds, new_values):
            if old is None and key_of(row) not in inserted:
                inserted[key_of(row)] = row
                written.append(reference.insert(table, row))
            elif old is None and is_update:
                outcome.errors.add(TWICE)
            elif old is None and not is_ordered and row != inserted[key_of(row)]:
                raise Undecided("which of the rows with one key is kept")
            elif values is not None:
                outcome.errors |= {TWICE} if old in updated else set()
                updated.add(old)
                reference.update(table, old, [column for column, _ in self.conflict.assignments], values)
                written.append(old)
        return written

    def new_values(self, reference, table, row, old):
        excluded = ", ".join(f"{literal(row[column])} AS {column}" for column in table.columns)
        where = "true" if self.conflict.where is None else sqlite_text(self.conflict.where)
        values = sqlite_text.list(value for _, value in self.conflict.assignments)
        found = reference.query(f"SELECT {values} FROM {self.table}, (SELECT {excluded}) AS excluded WHERE {self.table}.rowid = {old} AND ({where})")
        return found[0] if found else None


@dataclasses.dataclass(frozen=True)
class Update:
    table: str
    alias: str
    assignments: list
    others: str | object = None
    where: object = None
    returning: list | None = None

    def text(self, write):
        others = "" if self.others is None else f" FROM {write(self.others)}"
        where = "" if self.where is None else f" WHERE {write(self.where)}"
        assignments = write.assignments(self.assignments)
        return f"UPDATE {named(self.table, self.alias)} SET {assignments}{others}{where}{returning_text(write, self.returning)}"

    def run(self, reference):
        table = BY_NAME[self.table]
        columns = [column for column, _ in self.assignments]
        values = [default(table, column) if value == DEFAULT else sqlite_text(value) for column, value in self.assignments]
        others = "" if self.others is None else ", " + sqlite_text(self.others)
        rows = f" FROM {self.table} AS {self.alias}{others} WHERE " + ("true" if self.where is None else sqlite_text(self.where))
        found = reference.query(f"SELECT {self.alias}.rowid, {', '.join(values)}{rows}")
        outcome = Outcome(count=len(found))
        # SQLite divides by zero: NULL.
        divisors = [value.parts[0] for _, value in self.assignments if isinstance(value, Tree) and value.template == DIVISION]
        if any(reference.query(f"SELECT 1{rows} AND {sqlite_text(divisor)} = 0") for divisor in divisors):
            outcome.errors.add(DIVISION_BY_ZERO)
        if len({row[0] for row in found}) < len(found):
            outcome.errors |= {TWICE, NOT_NULL, UNIQUE}  # whichever is found first
        for rowid, *new in found:
            reference.update(table, rowid, columns, new)
        outcome.rows = reference.returned(table, self.alias, self.returning, [row[0] for row in found])
        return outcome


@dataclasses.dataclass(frozen=True)
class Delete:
    table: str
    alias: str
    others: object = None
    where: object = None
    returning: list | None = None

    def text(self, write):
        others = "" if self.others is None else f" USING {write(self.others)}"
        where = "" if self.where is None else f" WHERE {write(self.where)}"
        return f"DELETE FROM {named(self.table, self.alias)}{others}{where}{returning_text(write, self.returning)}"

    def run(self, reference):
        others = "" if self.others is None else ", " + sqlite_text(self.others)
        where = "true" if self.where is None else sqlite_text(self.where)
        found = [row[0] for row in reference.query(f"SELECT DISTINCT {self.alias}.rowid FROM {self.table} AS {self.alias}{others} WHERE {where}")]
        rows = reference.returned(BY_NAME[self.table], self.alias, self.returning, found)
        reference.delete(BY_NAME[self.table], found)
        return Outcome(len(found), rows)


@dataclasses.dataclass(frozen=True)
class Truncate:
    table: str

    def text(self, _):
        return f"TRUNCATE {self.table}"

    def run(self, reference):
        reference.query(f"DELETE FROM {self.table}")
        return Outcome()


@dataclasses.dataclass(frozen=True)
class When:
    """`action`: UPDATE, DELETE, INSERT or NOTHING; `pairs`: columns and values of INSERT and UPDATE."""

    is_matched: bool
    action: str
    pairs: list
    condition: object = None

    def text(self, write):
        condition = "" if self.condition is None else f" AND {write(self.condition)}"
        columns = ", ".join(column for column, _ in self.pairs)
        actions = {
            "UPDATE": lambda: f"UPDATE SET {write.assignments(self.pairs)}",
            "DELETE": lambda: "DELETE",
            "INSERT": lambda: f"INSERT ({columns}) VALUES ({write.list(value for _, value in self.pairs)})",
            "NOTHING": lambda: "DO NOTHING",
        }
        return f" WHEN {'' if self.is_matched else 'NOT '}MATCHED{condition} THEN {actions[self.action]()}"


@dataclasses.dataclass(frozen=True)
class Merge:
    table: str
    alias: str
    source: object
    on: object
    clauses: list

    def text(self, write):
        start = f"MERGE INTO {named(self.table, self.alias)} USING {write(self.source)} ON {write(self.on)}"
        return start + "".join(clause.text(write) for clause in self.clauses)

    def run(self, reference):
        table, source, on = BY_NAME[self.table], sqlite_text(self.source), sqlite_text(self.on)
        target = f"{self.table} AS {self.alias}"
        matched = self.actions(reference, f"{self.alias}.rowid", f"{target}, {source} WHERE {on}", True)
        unmatched = self.actions(reference, "NULL", f"{source} WHERE NOT EXISTS (SELECT 1 FROM {target} WHERE {on})", False)
        outcome = Outcome(len(matched) + len(unmatched))
        if len({rowid for rowid, _, _ in matched}) < len(matched):
            outcome.errors |= {TWICE, NOT_NULL, UNIQUE}
        for rowid, clause, values in matched:
            if clause.action == "UPDATE":
                reference.update(table, rowid, [column for column, _ in clause.pairs], values)
            else:
                reference.delete(table, [rowid])
        for _, clause, values in unmatched:
            given = dict(zip([column for column, _ in clause.pairs], values))
            reference.insert(table, {column: given.get(column, table.defaults.get(column)) for column in table.columns} | given)
        return outcome

    def actions(self, reference, rowid, rows, is_matched):
        """What happens to each of the rows: rowid, clause, values."""
        clauses = [clause for clause in self.clauses if clause.is_matched == is_matched]
        found, is_earlier = [], "false"
        for clause in clauses:
            condition = "true" if clause.condition is None else sqlite_text(clause.condition)
            values = "".join(", " + sqlite_text(value) for _, value in clause.pairs)
            applicable = reference.query(f"SELECT {rowid}{values} FROM {rows} AND ({condition}) AND ({is_earlier}) IS NOT TRUE")
            found += [(row[0], clause, row[1:]) for row in applicable if clause.action != "NOTHING"]
            is_earlier += f" OR ({condition})"
        return found


@dataclasses.dataclass(frozen=True)
class Select:
    table: str
    alias: str
    where: object

    def text(self, write):
        return f"SELECT {self.alias}.* FROM {named(self.table, self.alias)} WHERE {write(self.where)}"

    def run(self, reference):
        rows = typed(reference.query(self.text(sqlite_text)), BY_NAME[self.table].columns.values())
        return Outcome(len(rows), rows)


@dataclasses.dataclass(frozen=True)
class Index:
    """CREATE INDEX, which changes no rows."""

    on: str
    column: str
    method: str

    def text(self, _):
        return f"CREATE INDEX IF NOT EXISTS {self.on}_{self.column} ON {self.on} USING {self.method} ({self.column})"

    def run(self, _):
        return Outcome()


# What is generated.


class Generator:
    def __init__(self, seed, reference, features):
        self.random, self.reference, self.features = random.Random(seed), reference, features
        self.aliases = itertools.count(1)
        self.recent = []

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def pick(self, *choices):
        """One of `choices`: functions to call, or things; `(weight, choice)` for more than one chance."""
        weights = [choice[0] if isinstance(choice, tuple) else 1 for choice in choices]
        chosen = self.random.choices(choices, weights)[0]
        chosen = chosen[1] if isinstance(chosen, tuple) else chosen
        return chosen() if callable(chosen) else chosen

    def alias(self):
        return f"s{next(self.aliases)}"

    def any_table(self):
        return self.random.choice([*TABLES, *TABLES, EMPTY])

    # Expressions. `scopes`: for each query, from the outermost, its relations as (alias, table).

    def constant(self, kind):
        values = {
            "integer": lambda: self.random.randrange(-5, 30),
            "text": lambda: self.random.choice(WORDS),
            "float": lambda: self.random.randrange(-8, 80) / 4,
            "boolean": lambda: self.chance(50),
            "limit": lambda: self.random.randrange(4),
        }
        if kind.endswith("[]"):
            return Constant(kind, [values[kind.removesuffix("[]")]() for _ in range(self.random.randrange(1, 4))])
        return Constant(kind, values[kind]())

    def column(self, kind, scopes, may_be_plain=True):
        if not scopes:
            return self.constant(kind)
        relations = scopes[-1] if len(scopes) == 1 or self.chance(70) else self.random.choice(scopes)
        found = [(alias, column) for alias, table in relations for column, its in table.columns.items() if its == kind]
        if not found:
            return self.constant(kind)
        alias, column = self.random.choice(found)
        is_plain = may_be_plain and relations is scopes[-1] and len(relations) == 1 and self.chance(30)
        return Tree(kind, column if is_plain else f"{alias}.{column}")

    def value(self, kind, scopes, depth):
        if depth <= 0 or self.chance(35):
            return self.column(kind, scopes) if self.chance(70) else self.constant(kind)

        def of(template, *kinds):
            return lambda: tree(kind, template, *[self.value(part, scopes, depth - 1) for part in kinds])

        common = [
            of("coalesce({}, {})", kind, kind),
            lambda: tree(kind, "CASE WHEN {} THEN {} ELSE {} END", self.condition(scopes, depth - 1),
                         self.value(kind, scopes, depth - 1), self.value(kind, scopes, depth - 1)),
            lambda: tree(kind, "CASE {} WHEN {} THEN {} END", self.column("integer", scopes), self.constant("integer"),
                         self.value(kind, scopes, depth - 1)),
        ]
        if kind == "boolean":
            found = self.condition(scopes, depth - 1)
            return Tree(kind, "CAST(NULL AS boolean)") if found == NULL_CONDITION else found
        if kind == "integer":
            return self.pick(
                *common, of("({} + {})", kind, kind), of("({} - {})", kind, kind), of("({} * {})", kind, kind), of("({} % 7)", kind),
                of("({} / 3)", kind), of("abs({})", kind), of("(- {})", kind), of("nullif({}, {})", kind, kind), of("length({})", "text"),
                (2, lambda: self.scalar(kind, scopes, depth - 1)),
            )
        if kind == "text":
            return self.pick(
                *common, (2, of("substr({} || {}, 1, 4)", kind, kind)), of("substr({}, 2)", kind), of("nullif({}, {})", kind, kind),
                of("CAST({} AS text)", "integer"), of("replace({}, 'x', 'yy')", kind), lambda: self.scalar(kind, scopes, depth - 1),
            )
        return self.pick(
            *common, of("({} + 0.25)", kind), of("({} * 0.5)", "integer"), of("CAST({} AS double precision)", "integer"), of("(- {})", kind),
            lambda: self.scalar(kind, scopes, depth - 1),
        )

    def condition(self, scopes, depth):
        kind = self.pick((5, "integer"), (3, "text"), "float", "boolean")

        def value(depth=depth):
            return self.value(kind, scopes, min(depth, 1))

        def known():
            """Not a parameter, whose type `$1 IS NULL` would not tell."""
            found = value()
            return inline(found) if isinstance(found, Constant) else found

        def of(template, *parts, sqlite=None):
            return lambda: tree("boolean", template, *[part() for part in parts], sqlite=sqlite)

        def inner():
            return self.condition(scopes, depth - 1)

        leaves = [
            (6, of(f"{{}} {self.pick('=', '<>', '<', '<=', '>', '>=')} {{}}", value, value)),
            (2, of("{} IS NULL", known)), (2, of("{} IS NOT NULL", known)),
            of("{} IS DISTINCT FROM {}", value, value, sqlite="{} IS NOT {}"),
            of("{} IS NOT DISTINCT FROM {}", value, value, sqlite="{} IS {}"),
            of("{} BETWEEN {} AND {}", value, value, value), of("{} NOT BETWEEN {} AND {}", value, value, value),
            lambda: self.in_list(value()),
            of("{} LIKE {}", lambda: self.value("text", scopes, 1), self.pattern),
            of("{} NOT LIKE {}", lambda: self.value("text", scopes, 1), self.pattern),
            lambda: self.column("boolean", scopes),
            of(f"{{}} IS {self.truth()}", lambda: self.column("boolean", scopes)),
            Tree("boolean", "true"), Tree("boolean", "false"), NULL_CONDITION,
            lambda: tree("boolean", "{} = NULL", self.column(kind, scopes)),
        ]
        if depth <= 0:
            return self.pick(*leaves)
        return self.pick(
            *leaves,
            (4, of("{} AND {}", inner, inner)), (4, of("{} OR {}", inner, inner)), (4, of("NOT {}", inner)),
            of(f"{{}} IS {self.truth()}", inner), of("CASE WHEN {} THEN {} ELSE {} END", inner, inner, inner),
            (4, lambda: self.in_query(kind, value(1), scopes, depth - 1)),
            (4, lambda: tree("boolean", self.pick("EXISTS ({})", "NOT EXISTS ({})"), self.related(scopes, depth - 1))),
            (2, of(f"{{}} {self.pick('=', '<', '>=', '<>')} {{}}", value, lambda: self.scalar(kind, scopes, depth - 1))),
        )

    def truth(self):
        return self.pick("TRUE", "NOT TRUE", "FALSE", "NOT FALSE")

    def pattern(self):
        return Constant("text", self.random.choice(["x%", "%y%", "_", "x_", "", "%", "a_b", "%'s", "__"]))

    def in_list(self, value):
        if self.chance(25):
            operator, in_sqlite = self.random.choice([("= ANY", "IN"), ("<> ALL", "NOT IN")])
            return tree("boolean", f"{{}} {operator} ({{}})", value, self.constant(f"{value.kind}[]"), sqlite=f"{{}} {in_sqlite} {{}}")
        elements = [self.constant(value.kind) for _ in range(self.random.randrange(1, 4))]
        elements += [Tree(value.kind, "NULL")] if self.chance(20) else []
        marks = ", ".join("{}" for _ in elements)
        return tree("boolean", f"{{}} {self.pick('IN', 'NOT IN')} ({marks})", value, *elements)

    def in_query(self, kind, value, scopes, depth):
        query = self.query(kind, scopes, depth)
        if "rows_in" in self.features and self.chance(15):
            alias = self.alias()
            return tree("boolean", f"({{}}, {{}}) {self.pick('IN', 'NOT IN')} (SELECT {alias}.n, {alias}.w FROM {self.any_table().name} AS {alias})",
                        self.value("integer", scopes, 1), self.value("text", scopes, 1))
        if "any" in self.features and self.chance(20):
            operator, in_sqlite = self.random.choice([("= ANY", "IN"), ("<> ALL", "NOT IN")])
            return tree("boolean", f"{{}} {operator} ({{}})", value, query, sqlite=f"{{}} {in_sqlite} ({{}})")
        return tree("boolean", f"{{}} {self.pick('IN', 'NOT IN')} ({{}})", value, query)

    # Queries of one column; the order of rows never matters.

    def relation(self):
        table = self.any_table()
        return self.alias(), table

    def query(self, kind, scopes, depth):
        return self.pick(
            (6, lambda: self.plain_query(kind, scopes, depth)),
            lambda: self.aggregate(kind, scopes, depth),
            lambda: self.grouped(kind, scopes, depth),
            lambda: self.limited(kind, scopes, depth),
            lambda: tree("query", self.pick("{} UNION {}", "{} UNION ALL {}", "{} EXCEPT {}", "{} INTERSECT {}"),
                         self.plain_query(kind, scopes, depth), self.plain_query(kind, scopes, depth)),
            lambda: self.joined(kind, scopes, depth),
            lambda: self.derived(kind, scopes, depth),
        )

    def plain_query(self, kind, scopes, depth):
        alias, table = self.relation()
        inner = [*scopes, [(alias, table)]]
        select = f"SELECT {self.pick('', '', 'DISTINCT ')}{{}} AS v FROM {table.name} AS {alias}"
        value = self.value(kind, [inner[-1]], 1)
        return tree("query", select + " WHERE {}", value, self.condition(inner, depth)) if self.chance(70) else tree("query", select, value)

    def aggregate(self, kind, scopes, depth):
        alias, table = self.relation()
        inner = [*scopes, [(alias, table)]]
        functions = {"integer": ["max({})", "min({})", "count({})", "sum({})", "count(*)"], "boolean": ["count(*) > 2"]}
        function = self.random.choice(functions.get(kind, ["max({})", "min({})"]))
        parts = [self.value(kind, [inner[-1]], 1)] if "{}" in function else []
        return tree("query", f"SELECT {function} AS v FROM {table.name} AS {alias} WHERE {{}}", *parts, self.condition(inner, depth))

    def grouped(self, kind, scopes, depth):
        alias, table = self.relation()
        inner = [*scopes, [(alias, table)]]
        column = next((f"{alias}.{column}" for column, its in table.columns.items() if its == kind), None)
        if column is None:
            return self.plain_query(kind, scopes, depth)
        having = self.pick("count(*) > 1", f"max({alias}.n) > 3", f"count({alias}.w) = 0")
        template = f"SELECT {column} AS v FROM {table.name} AS {alias} WHERE {{}} GROUP BY {column} HAVING {having}"
        return tree("query", template, self.condition(inner, depth))

    def limited(self, kind, scopes, depth):
        alias, table = self.relation()
        inner = [*scopes, [(alias, table)]]
        order = self.pick("v NULLS FIRST", "v DESC NULLS LAST", "v NULLS LAST")
        template = f"SELECT {{}} AS v FROM {table.name} AS {alias} WHERE {{}} ORDER BY {order} LIMIT {{}}{self.pick('', ' OFFSET 1')}"
        limit = self.constant("limit")
        return tree("query", template, self.value(kind, [inner[-1]], 1), self.condition(inner, depth), limit)

    def joined(self, kind, scopes, depth):
        (left, left_table), (right, right_table) = self.relation(), self.relation()
        inner = [*scopes, [(left, left_table), (right, right_table)]]
        join = self.pick("JOIN", "LEFT JOIN")
        on = f"{left}.n = {right}.n" if self.chance(70) else f"{left}.w = {right}.w AND {left}.n < {right}.n"
        template = f"SELECT {{}} AS v FROM {left_table.name} AS {left} {join} {right_table.name} AS {right} ON {on} WHERE {{}}"
        return tree("query", template, self.value(kind, [inner[-1]], 1), self.condition(inner, depth))

    def derived(self, kind, scopes, depth):
        alias = self.alias()
        query = self.query(kind, [], depth - 1)
        template = self.pick(f"SELECT {alias}.v FROM ({{}}) AS {alias}", f"WITH {alias} AS ({{}}) SELECT {alias}.v FROM {alias}")
        return tree("query", template + self.pick("", f" WHERE {alias}.v IS NOT NULL"), query)

    def related(self, scopes, depth):
        """A query for EXISTS: mostly one that has to do with the row outside."""
        alias, table = self.relation()
        inner = [*scopes, [(alias, table)]]
        kind = self.pick("integer", "text")
        outside = self.column(kind, scopes, may_be_plain=False)
        link = tree("boolean", f"{{}} {self.pick('=', '=', '=', '<', '<>')} {{}}", self.column(kind, [inner[-1]]), outside)
        condition = link if self.chance(40) else tree("boolean", "{} AND {}", link, self.condition(inner, depth))
        return tree("query", f"SELECT {self.pick('1', '*', f'{alias}.n')} FROM {table.name} AS {alias} WHERE {{}}", condition)

    def scalar(self, kind, scopes, depth):
        """A subquery of one row at most."""
        if kind == "boolean":
            return tree(kind, "({})", self.aggregate(kind, scopes, depth))
        return tree(kind, "({})", self.pick(
            (3, lambda: self.aggregate(kind, scopes, depth)),
            (2, lambda: self.correlated_aggregate(kind, scopes)),
            (2, lambda: self.by_key(kind, scopes)),
            lambda: self.first(kind, scopes, depth),
        ))

    def correlated_aggregate(self, kind, scopes):
        alias, table = self.relation()
        inner = [(alias, table)]
        function = self.pick("max({})", "min({})", *(["count({})", "coalesce(sum({}), 0)", "count(*)"] if kind == "integer" else []))
        link_kind = self.pick("integer", "text")
        outside = self.column(link_kind, scopes, may_be_plain=False)
        parts = [self.column(kind, [inner])] if "{}" in function else []
        template = f"SELECT {function} AS v FROM {table.name} AS {alias} WHERE {{}} = {{}}"
        return tree("query", template, *parts, self.column(link_kind, [inner]), outside)

    def by_key(self, kind, scopes):
        table = self.random.choice([table for table in TABLES if table.key])
        alias = self.alias()
        value = self.column(kind, [[(alias, table)]])
        return tree("query", f"SELECT {{}} AS v FROM {table.name} AS {alias} WHERE {{}}", value, self.key_equals(alias, table, scopes))

    def key_equals(self, alias, table, scopes):
        """`alias` has one row at most for which this is true."""
        values = [self.column(table.columns[column], scopes, may_be_plain=False) for column in table.key]
        parts = [tree("boolean", f"{alias}.{column} = {{}}", value) for column, value in zip(table.key, values)]
        # Not a conjunction of its own kind: a part of it alone would not be a key.
        return tree("key", " AND ".join("{}" for _ in parts), *parts)

    def first(self, kind, scopes, depth):
        alias, table = self.relation()
        inner = [*scopes, [(alias, table)]]
        template = f"SELECT {{}} AS v FROM {table.name} AS {alias} WHERE {{}} ORDER BY v {self.pick('', 'DESC ')}NULLS LAST LIMIT 1"
        return tree("query", template, self.value(kind, [inner[-1]], 1), self.condition(inner, depth))

    # Statements.

    def statement(self):
        for table in TABLES:
            if self.reference.query(f"SELECT count(*) FROM {table.name}")[0][0] < FEW_ROWS and self.chance(40):
                return self.insert_values(table, self.random.randrange(4, 9))
        table = self.random.choice(TABLES)
        if self.recent and self.chance(6):
            return with_constants(self.random.choice(self.recent), self.other_constant)
        statement = self.pick(
            (26, lambda: self.insert_values(table, self.random.randrange(1, 5))),
            (9, lambda: self.insert_query(table)),
            (24, lambda: self.update(table)),
            (6, lambda: self.update_keys(table)),
            (8, lambda: self.update_from(table)),
            (18, lambda: self.delete(table)),
            (6, lambda: self.delete_using(table)),
            (10 if "merge" in self.features else 0, lambda: self.merge(table)),
            (1 if "truncate" in self.features else 0, lambda: Truncate(table.name)),
            (5, lambda: self.select(table)),
            (1, lambda: self.index(table)),
        )
        self.recent = [*self.recent[-8:], statement]
        return statement

    def other_constant(self, constant):
        return dataclasses.replace(constant, value=self.constant(constant.kind).value)

    def target(self, table):
        return self.pick(table.name, "t")

    def returning(self, table, alias, may_be_plain=True):
        if self.chance(60):
            return None
        if self.chance(30):
            return [(Tree("star", "*" if may_be_plain else f"{alias}.*"), "*")]
        # PostgreSQL could mean a column of FROM or USING; the second relation here has none.
        scopes = [[(alias, table)] if may_be_plain else [(alias, table), (alias, table)]]
        kinds = [self.random.choice(list(table.columns.values())) for _ in range(self.random.randrange(1, 4))]
        values = [self.without_subquery(lambda: self.value(kind, scopes, 2)) for kind in kinds]
        return [(tree("item", f"{{}} AS r{number}", value), kind) for number, (value, kind) in enumerate(zip(values, kinds))]

    def without_subquery(self, make):
        return next(found for found in iter(make, None) if "SELECT" not in Writer()(found))

    def new_value(self, table, column, scopes, depth=2):
        kind = table.columns[column]
        if self.chance(8):
            return Tree(kind, "NULL")
        value = self.value(kind, scopes, depth)
        if kind == "integer" and isinstance(value, Tree) and value.parts:
            return tree(kind, "({} % 50)", value)
        return value

    def free_key(self, table):
        taken = {row[0] for row in self.reference.query(f"SELECT {table.key[0]} FROM {table.name}")}
        if table.columns[table.key[0]] == "text":
            free = [word + str(number) for word in "kx" for number in range(20) if word + str(number) not in taken]
        else:
            free = [number for number in range(40) if number not in taken]
        return self.random.choice(free or [0])

    def insert_values(self, table, count):
        named_columns = None
        if self.chance(60):
            named_columns = [column for column in table.columns if column in table.key or self.chance(65)]
            named_columns = named_columns or ["n"]
            self.random.shuffle(named_columns)
        rows = []
        for _ in range(count):
            rows.append([self.insert_value(table, column) for column in named_columns or table.columns])
        if table.key and self.chance(70):
            position = (named_columns or list(table.columns)).index(table.key[0])
            kind, first = table.columns[table.key[0]], self.free_key(table)
            for number, row in enumerate(rows):
                row[position] = Constant(kind, first + number if kind == "integer" else first if number == 0 else f"{first}.{number}")
        return Insert(table.name, named_columns and tuple(named_columns), rows, self.conflict(table), self.returning(table, table.name))

    def insert_value(self, table, column):
        kind = table.columns[column]
        if "default" in self.features and self.chance(5):
            return DEFAULT
        if self.chance(3 if column in table.not_null else 12):
            return self.pick(Tree(kind, "NULL"), Constant(kind, None))
        if self.chance(8):
            return self.value(kind, [], 1)
        return self.constant(kind)

    def conflict(self, table):
        if not table.key or "on_conflict" not in self.features or self.chance(60):
            return None
        if self.chance(40):
            return Conflict(has_target=self.chance(80))
        scopes = [[(table.name, table), ("excluded", table)]]
        columns = [column for column in table.columns if column not in table.key or self.chance(4)]
        columns = self.random.sample(columns, self.random.randrange(1, min(4, len(columns) + 1)))
        pairs = []
        for column in columns:
            depth = 2 if self.chance(30) else 1
            plain_value = self.pick(
                (3, Tree(table.columns[column], f"excluded.{column}")),
                (2, lambda: self.new_value(table, column, scopes, depth)),
            )
            pairs.append((column, plain_value))
        return Conflict(pairs, self.condition(scopes, self.random.randrange(0, 3)) if self.chance(40) else None)

    def insert_query(self, table):
        alias, source = self.alias(), self.random.choice([table, *TABLES, EMPTY])
        scopes = [[(alias, source)]]
        columns = [column for column in table.columns if column in table.key or self.chance(75)] or ["w"]
        values = []
        for column in columns:
            if column not in table.key:
                value = self.new_value(table, column, scopes)
                if value == Tree(value.kind, "NULL"):  # In a query of its own NULL would be a text.
                    value = Tree(value.kind, f"CAST(NULL AS {table.types[column]})")
            elif table.columns[column] == "integer":
                largest = self.reference.query(f"SELECT max({column}) FROM {table.name}")[0][0] or 0
                shift = largest + 1 if largest < 60 and self.chance(70) else self.random.randrange(20)
                own = self.random.choice([column for column, kind in source.columns.items() if kind == "integer"])
                value = tree("integer", f"({alias}.{own} + {{}})", Constant("integer", shift))
            else:
                value = tree("text", f"({{}} || coalesce(CAST({alias}.n AS text), '-'))", self.constant("text"))
            values.append(value)
        items = ", ".join(f"{{}} AS c{number}" for number in range(len(values)))
        template = f"SELECT {self.pick('', '', 'DISTINCT ')}{items} FROM {source.name} AS {alias}"
        where = []
        if self.chance(70):
            template += " WHERE {}"
            where = [self.condition(scopes, 2)]
        query = tree("query", template, *values, *where)
        return Insert(table.name, tuple(columns), query, self.conflict(table), self.returning(table, table.name))

    def update(self, table):
        alias = self.target(table)
        scopes = [[(alias, table)]]
        columns = [column for column in table.columns if column not in table.key]
        columns = self.random.sample(columns, self.random.randrange(1, min(4, len(columns) + 1)))
        pairs = [(column, DEFAULT if self.chance(5) else self.new_value(table, column, scopes)) for column in columns]
        where = self.condition(scopes, self.random.randrange(0, 4)) if self.chance(90) else None
        if self.chance(6):
            divisor = tree("integer", f"({alias}.n - {{}})", self.constant("integer"))
            pairs = [("n", tree("integer", DIVISION, divisor)), *[pair for pair in pairs if pair[0] != "n"]]
        return Update(table.name, alias, pairs, None, where, self.returning(table, alias))

    def update_keys(self, table):
        if not table.key:
            return self.update(table)
        alias = self.target(table)
        scopes = [[(alias, table)]]
        column = self.random.choice(table.key)
        kind = table.columns[column]
        if kind == "integer":
            value = self.pick(
                (2, lambda: tree(kind, f"{{}} - {alias}.{column}", Constant(kind, self.random.randrange(20, 45)))),
                (2, lambda: tree(kind, f"{alias}.{column} + {{}}", Constant(kind, self.random.choice([1, 2, -1, 40])))),
                (2, lambda: self.swap(kind, f"{alias}.{column}", self.random.randrange(40), self.random.randrange(40))),
                lambda: self.new_value(table, column, scopes),
            )
        else:
            value = self.pick(
                lambda: tree(kind, f"{alias}.{column} || {{}}", self.constant(kind)),
                lambda: self.swap(kind, f"{alias}.{column}", self.random.choice(WORDS), self.random.choice(WORDS)),
                lambda: self.new_value(table, column, scopes),
            )
        where = self.condition(scopes, self.random.randrange(0, 2)) if self.chance(60) else None
        return Update(table.name, alias, [(column, value)], None, where, self.returning(table, alias))

    def swap(self, kind, column, one, other):
        one, other = Constant(kind, one), Constant(kind, other)
        return tree(kind, f"CASE {column} WHEN {{}} THEN {{}} WHEN {{}} THEN {{}} ELSE {column} END", one, other, other, one)

    def unique_source(self, scopes):
        """A relation of FROM, its scope and a condition that is true for one of its rows at most."""
        alias = self.alias()
        if self.chance(25):
            grouped = Table("", {"g": "integer", "m": "text", "c": "bigint"})
            source = self.any_table()
            query = f"(SELECT x.n AS g, max(x.w) AS m, count(*) AS c FROM {source.name} AS x GROUP BY x.n) AS {alias}"
            return query, (alias, grouped), tree("key", f"{alias}.g = {{}}", self.column("integer", scopes, may_be_plain=False))
        table = self.random.choice([table for table in TABLES if table.key])
        return f"{table.name} AS {alias}", (alias, table), self.key_equals(alias, table, scopes)

    def update_from(self, table):
        alias = self.target(table)
        others, relation, link = self.unique_source([[(alias, table)]])
        if self.chance(6):  # Too many rows, mostly.
            link = tree("key", f"{relation[0]}.{next(iter(relation[1].columns))} IS NOT NULL")
        scopes = [[(alias, table), relation]]
        columns = [column for column in table.columns if column not in table.key or self.chance(5)]
        columns = self.random.sample(columns, self.random.randrange(1, min(4, len(columns) + 1)))
        pairs = [(column, self.new_value(table, column, scopes)) for column in columns]
        where = tree("boolean", "{} AND {}", link, self.condition(scopes, self.random.randrange(0, 3))) if self.chance(50) else link
        return Update(table.name, alias, pairs, Tree("from", others), where, self.returning(table, alias, may_be_plain=False))

    def delete(self, table):
        alias = self.target(table)
        where = self.condition([[(alias, table)]], self.random.randrange(0, 4))
        # A condition that most rows pass would keep the tables empty.
        if self.chance(60):
            where = tree("boolean", f"{alias}.n % 3 = {self.random.randrange(3)} AND {{}}", where)
        return Delete(table.name, alias, None, None if self.chance(2) else where, self.returning(table, alias))

    def delete_using(self, table):
        alias, other, source = self.target(table), self.alias(), self.any_table()
        scopes = [[(alias, table), (other, source)]]
        others = f"{source.name} AS {other}"
        if self.chance(25):
            second, second_table = self.relation()
            scopes[0].append((second, second_table))
            others += self.pick(f", {second_table.name} AS {second}", f" JOIN {second_table.name} AS {second} ON {second}.n = {other}.n")
        kind = self.pick("integer", "text")
        link = tree("boolean", "{} = {}", *[self.column(kind, [[relation]], may_be_plain=False) for relation in scopes[0][:2]])
        where = tree("boolean", "{} AND {}", link, self.condition(scopes, self.random.randrange(0, 2)))
        return Delete(table.name, alias, Tree("using", others), where, self.returning(table, alias, may_be_plain=False))

    def merge(self, table):
        alias = self.target(table)
        scopes = [[(alias, table)]]
        source, relation, on = self.unique_source(scopes)
        if self.chance(60):  # The other way round: each row of the source meets one of the target.
            loose = tree("key", f"{alias}.n = {{}}", self.column("integer", [[relation]], may_be_plain=False))
            on = self.key_equals(alias, table, [[relation]]) if table.key else loose
        both = [[(alias, table), relation]]
        clauses = []
        for _ in range(self.random.randrange(1, 4)):
            is_matched = self.chance(60)
            scope = both if is_matched else [[relation]]
            action = self.pick((4, "UPDATE"), (2, "DELETE"), "NOTHING") if is_matched else self.pick((5, "INSERT"), "NOTHING")
            columns = []
            if action == "UPDATE":
                columns = [column for column in table.columns if column not in table.key or self.chance(5)]
                columns = self.random.sample(columns, self.random.randrange(1, min(4, len(columns) + 1)))
            elif action == "INSERT":
                columns = [column for column in table.columns if column in table.not_null or self.chance(60)] or ["n"]
            pairs = [(column, self.without_subquery(lambda: self.new_value(table, column, scope))) for column in columns]
            condition = self.without_subquery(lambda: self.condition(scope, 1)) if self.chance(50) else None
            clauses.append(When(is_matched, action, pairs, condition))
        # PostgreSQL: after a clause without condition none of its kind can be reached.
        for is_matched in (True, False):
            last = [number for number, clause in enumerate(clauses) if clause.is_matched == is_matched and clause.condition is None][:1]
            clauses = [clause for number, clause in enumerate(clauses) if clause.is_matched != is_matched or not last or number <= last[0]]
        return Merge(table.name, alias, Tree("using", source), on, clauses)

    def select(self, table):
        alias = self.target(table)
        return Select(table.name, alias, self.condition([[(alias, table)]], 3))

    def index(self, table):
        column = self.random.choice([column for column, kind in table.columns.items() if kind in ("integer", "text")])
        return Index(table.name, column, "bitmap" if "bitmap" in self.features and self.chance(30) else "btree")


# The server.


class Server:
    def __init__(self, host, port, has_on_conflict, is_strict):
        self.is_strict = is_strict
        options = dict(host=host, port=port, user="someone", dbname="rolloutdb", autocommit=True, cursor_factory=psycopg.RawCursor)
        self.connection = psycopg.connect(**options)
        # What one session wrote, another reads.
        self.reader = psycopg.connect(**options)
        self.is_postgres = "RolloutDB" not in self.connection.info.parameter_status("server_version")
        # PostgreSQL's keys: checked after each row, or after the statement and then of no use to ON CONFLICT.
        self.checks_rows = self.is_postgres and has_on_conflict
        self.key_option = " DEFERRABLE" if self.is_postgres and not has_on_conflict else ""

    def create_tables(self):
        self.drop_tables()
        for table in BY_NAME.values():
            self.connection.execute(table.create(key_option=self.key_option))

    def drop_tables(self):
        for name in BY_NAME:
            self.connection.execute(f"DROP TABLE IF EXISTS {name}")

    def run(self, statement, mode):
        """`mode`: `simple`, `parameters` or `prepared`, and `binary` for the format of the rows."""
        protocol, is_binary = mode
        parameters = None if protocol == "simple" else []
        text = statement.text(Writer(parameters))
        try:
            with self.connection.cursor(binary=is_binary) as cursor:
                cursor.execute(text, parameters or None, prepare=True if protocol == "prepared" else None)
                if cursor.description is None:
                    return Outcome(cursor.rowcount)
                rows = cursor.fetchall()
                return Outcome(cursor.rowcount, rows)
        except psycopg.Error as error:
            if self.connection.closed:
                raise ServerGone(str(error)) from error
            return Outcome(errors={error.sqlstate}, message=str(error))

    def contents(self, table):
        return self.reader.execute(f"SELECT * FROM {table.name}").fetchall()

    def features(self, arguments):
        """What the server can do of what is asked for."""
        probes = {
            "on_conflict": f"INSERT INTO {EMPTY.name} SELECT n, w FROM {EMPTY.name} ON CONFLICT DO NOTHING",
            "merge": f"MERGE INTO {EMPTY.name} USING {TABLES[0].name} AS s ON s.n = {EMPTY.name}.n WHEN MATCHED THEN DELETE",
            "truncate": f"TRUNCATE {EMPTY.name}",
            "default": f"INSERT INTO {TABLES[0].name} (id, n) VALUES (1, DEFAULT)",
            "any": f"SELECT n FROM {EMPTY.name} WHERE n = ANY (SELECT s.n FROM {TABLES[0].name} s) OR n <> ALL (SELECT s.n FROM {TABLES[0].name} s)",
            "rows_in": f"SELECT n FROM {EMPTY.name} WHERE (n, w) NOT IN (SELECT s.n, s.w FROM {TABLES[0].name} s)",
            "bitmap": f"CREATE INDEX ON {EMPTY.name} USING bitmap (n)",
        }
        found = set()
        for name, probe in probes.items():
            if getattr(arguments, name, True):
                try:
                    self.connection.execute(probe)
                    found.add(name)
                except psycopg.Error as error:
                    print(f"not supported, left out: {name} ({error.sqlstate} {error.diag.message_primary})")
        return found


# Comparison.


@dataclasses.dataclass
class Difference:
    """Two of one `kind` are taken for the same bug."""

    kind: str
    text: str

    def __str__(self):
        return self.text


@dataclasses.dataclass
class Step:
    statement: object
    mode: tuple

    def __str__(self):
        parameters = None if self.mode[0] == "simple" else []
        text = self.statement.text(Writer(parameters))
        return text + ";" + (f"  -- {self.mode[0]} {parameters}" if parameters else "")


class Run:
    """One database and the reference beside it, from empty tables on."""

    def __init__(self, server):
        self.server, self.reference = server, Reference()
        self.tally, self.refusals, self.examples = Counter(), Counter(), {}
        server.create_tables()

    def load(self, contents):
        for table in TABLES:
            if contents[table.name]:
                rows = [[Constant(kind, value) for value, kind in zip(row, table.columns.values())] for row in contents[table.name]]
                if difference := self.difference(Step(Insert(table.name, None, rows), ("simple", False))):
                    raise AssertionError(difference.text)

    def difference(self, step):
        """Runs the step on both sides: None, or what is not the same."""
        statement, verb = step.statement, type(step.statement).__name__
        if self.server.checks_rows and changes_keys(statement):
            raise Undecided("keys are checked after each row")
        before = {table.name: self.reference.contents(table) for table in TABLES}
        expected = self.reference.run(statement)
        if self.server.is_postgres and isinstance(statement, Update) and TWICE in expected.errors:
            raise Undecided("any of several new rows is taken")
        found = self.server.run(statement, step.mode)
        if reason := self.refusal(found, expected):
            self.refusals[reason] += 1
            self.examples.setdefault(reason, f"{step}\n{found.message}")
            self.restore(before)
            expected = found
        self.tally[verb + (" fails" if expected.errors else " of rows" if expected.count > 0 else "")] += 1
        if difference := outcomes_differ(expected, found):
            return difference
        for table in BY_NAME.values():
            wanted, stored = self.reference.contents(table), in_order(self.server.contents(table))
            if wanted != stored:
                return Difference("table", f"{table.name} should hold\n{lines(wanted, stored)}\nbut holds\n{lines(stored, wanted)}")
        return None

    def refusal(self, found, expected):
        """Why this error is let pass."""
        if found.errors <= {*expected.errors, NOT_NULL, UNIQUE, TWICE, DIVISION_BY_ZERO}:
            return None
        if UNSUPPORTED in found.errors:
            return f"{UNSUPPORTED} {found.message[:90]}"
        known = [] if self.server.is_strict else KNOWN_REFUSALS.items()
        return next((reason for pattern, reason in known if re.search(pattern, found.message)), None)

    def restore(self, contents):
        for table in TABLES:
            self.reference.query(f"DELETE FROM {table.name}")
            for row in contents[table.name]:
                self.reference.insert(table, dict(zip(table.columns, row)))


def outcomes_differ(expected, found):
    if expected.errors or found.errors:
        if found.errors <= expected.errors and found.errors:
            return None
        wanted = " or ".join(sorted(expected.errors)) or f"success, count {expected.count}, rows {expected.rows}"
        got = f"{' '.join(found.errors)} {found.message}" if found.errors else f"success, count {found.count}"
        kind = f"error {bool(expected.errors)} {found.errors} {re.sub('[^a-z ]', '', found.message)[:30]}"
        return Difference(kind, f"expected {wanted}, got {got}")
    if expected.count >= 0 and expected.count != found.count:
        return Difference("count", f"expected the count {expected.count}, got {found.count}")
    if expected.rows is None or found.rows is None:
        return None if expected.rows is found.rows else Difference("no rows", f"expected the rows {expected.rows}, got {found.rows}")
    rows = in_order([tuple(float(value) if isinstance(value, decimal.Decimal) else value for value in row) for row in found.rows])
    if expected.rows == rows:
        return None
    return Difference("rows", f"expected the rows\n{lines(expected.rows, rows)}\ngot\n{lines(rows, expected.rows)}")


def lines(rows, others):
    """What `others` do not have, marked, and how many there are."""
    marked = [f"  {row}" for row in (Counter(rows) - Counter(others)).elements()]
    return "\n".join([*marked[:10], f"  ({len(rows)} rows, these are in one of the two only)" if marked else f"  ({len(rows)} rows)"])


def changes_keys(statement):
    table = BY_NAME[getattr(statement, "table", EMPTY.name)]
    assignments = list(getattr(statement, "assignments", []))
    assignments += getattr(getattr(statement, "conflict", None), "assignments", None) or []
    assignments += [pair for clause in getattr(statement, "clauses", []) if clause.action == "UPDATE" for pair in clause.pairs]
    return any(column in table.key for column, _ in assignments)


# The smallest statements that differ.


def shrink(server, contents, history, last, kind):
    """Rows, statements before the last one, and the last one, of a difference that is still there."""
    deadline = time.monotonic() + SHRINK_SECONDS

    def differs(contents, steps):
        run = Run(server)
        try:
            run.load(contents)
            found = next(filter(None, map(run.difference, steps)), None)
            return found is not None and found.kind == kind
        except (Undecided, AssertionError, sqlite3.Error, ValueError, KeyError):
            return False

    def smaller(candidates, is_kept):
        return next((candidate for candidate in candidates if time.monotonic() < deadline and is_kept(candidate)), None)

    nothing = {table.name: [] for table in TABLES}
    steps = []
    if not differs(contents, [last]):
        # What the tables hold does not suffice; how they came to hold it matters.
        contents, steps = nothing, list(history)
        if not differs(contents, [*steps, last]):
            return None
        size = max(1, len(steps) // 2)
        while size and time.monotonic() < deadline:
            position = 0
            while position < len(steps) and time.monotonic() < deadline:
                fewer = steps[:position] + steps[position + size :]
                if differs(contents, [*fewer, last]):
                    steps = fewer
                else:
                    position += size
            size //= 2
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        simple = Step(last.statement, ("simple", False))
        variant = smaller([simple] if last.mode != simple.mode else [], lambda step: differs(contents, [*steps, step]))
        variant = variant or smaller((Step(statement, last.mode) for statement in variants(last.statement)),
                                     lambda step: differs(contents, [*steps, step]))
        if variant:
            last, progress = variant, True
            continue
        fewer_rows = ({**contents, name: rows[:at] + rows[at + size :]} for name, rows in contents.items()
                      for size in (len(rows), 8, 4, 2, 1) if 0 < size <= len(rows) for at in range(0, len(rows), size))
        if fewer := smaller(fewer_rows, lambda fewer: differs(fewer, [*steps, last])):
            contents, progress = fewer, True
            continue
        shorter = ([*steps[:at], Step(statement, step.mode), *steps[at + 1 :]]
                   for at, step in enumerate(steps) for statement in variants(step.statement))
        if shorter := smaller(shorter, lambda shorter: differs(contents, [*shorter, last])):
            steps, progress = shorter, True
    return contents, steps, last


def report(server, seed, contents, history, step, difference):
    print(f"\nDIFFERENCE, seed {seed}, after {len(history)} statements:\n{step}\n{difference}\n", flush=True)
    found = shrink(server, contents, history, step, difference.kind)
    if found is None:
        print("it does not happen again on new tables; all statements before it:")
        print("\n".join(str(earlier) for earlier in history))
        return
    contents, steps, last = found
    print("the smallest found:")
    used = [table for table in BY_NAME.values() if table.name in " ".join(map(str, [*steps, last]))]
    for table in used:
        print(table.create() + ";")
        for rows in filter(None, [contents.get(table.name)]):
            print(f"INSERT INTO {table.name} VALUES " + ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows) + ";")
    print("\n".join(str(step) for step in [*steps, last]))
    run = Run(server)
    run.load(contents)
    print(next(filter(None, (run.difference(step) for step in [*steps, last])), "(not reproduced)"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--statements", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--strict", action="store_true", help="known refusals are differences")
    parser.add_argument("--differences", type=int, default=1, help="how many to report before giving up")
    for name in ("on-conflict", "merge", "truncate"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    server = Server(arguments.host, arguments.port, arguments.on_conflict, arguments.strict)
    print(f"seed {arguments.seed}")
    try:
        sys.exit(compare(server, arguments))
    finally:
        if not server.connection.closed:
            server.drop_tables()


def compare(server, arguments):
    server.create_tables()
    features = server.features(arguments)
    tally, refusals, examples, done, differences = Counter(), Counter(), {}, 0, 0
    for episode in itertools.count():
        seed = f"{arguments.seed}/{episode}"
        run = Run(server)
        generator = Generator(seed, run.reference, features)
        history = []
        while len(history) < EPISODE and done < arguments.statements:
            step = Step(generator.statement(), (generator.pick((2, "simple"), "parameters", "prepared"), generator.chance(50)))
            contents = {table.name: run.reference.contents(table) for table in TABLES}
            if max(map(len, contents.values())) > MANY_ROWS and isinstance(step.statement, (Insert, Merge)):
                continue
            try:
                difference = run.difference(step)
            except Undecided:
                tally["undecided"] += 1
                continue
            except ServerGone as error:
                print("\n".join(map(str, [*history, step])), error, sep="\n")
                return 1
            done += 1
            if difference:
                report(server, seed, contents, history, step, difference)
                differences += 1
                if differences == arguments.differences:
                    return 1
                break
            history.append(step)
        tally += run.tally
        refusals += run.refusals
        examples = run.examples | examples
        if done >= arguments.statements:
            break
    print(", ".join(f"{name} {count}" for name, count in sorted(tally.items())))
    for reason, count in refusals.most_common():
        print(f"refused {count} times: {reason}\n  {examples[reason]}")
    print(f"ok {done} statements" if not differences else f"{differences} differences in {done} statements")
    return 1 if differences else 0


if __name__ == "__main__":
    main()
