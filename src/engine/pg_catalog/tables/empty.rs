//! Tables of what there is none of here: triggers, policies, publications, enumerations, replicas. They have their columns, so that queries about them run.

use super::Spec;
use crate::engine::pg_catalog::snapshot::Snapshot;
use crate::engine::pg_catalog::value::Row;

fn none(_: &Snapshot) -> Vec<Row> {
    Vec::new()
}

const fn empty(name: &'static str, oid: u32, columns: &'static str) -> Spec {
    Spec { name, oid, columns, rows: none }
}

pub const SPECS: &[Spec] = &[
    empty("pg_inherits", 2611, "inhrelid:oid inhparent:oid inhseqno:int4 inhdetachpending:bool"),
    empty(
        "pg_partitioned_table",
        3350,
        "partrelid:oid partstrat:char partnatts:int2 partdefid:oid partattrs:int2vector partclass:oidvector partcollation:oidvector \
         partexprs:pg_node_tree",
    ),
    empty(
        "pg_trigger",
        2620,
        "oid:oid tgrelid:oid tgparentid:oid tgname:name tgfoid:oid tgtype:int2 tgenabled:char tgisinternal:bool tgconstrrelid:oid \
         tgconstrindid:oid tgconstraint:oid tgdeferrable:bool tginitdeferred:bool tgnargs:int2 tgattr:int2vector tgargs:bytea \
         tgqual:pg_node_tree tgoldtable:name tgnewtable:name",
    ),
    empty("pg_rules", 12_201, "schemaname:name tablename:name rulename:name definition:text"),
    empty(
        "pg_policy",
        3256,
        "oid:oid polname:name polrelid:oid polcmd:char polpermissive:bool polroles:oid[] polqual:pg_node_tree polwithcheck:pg_node_tree",
    ),
    empty(
        "pg_publication",
        6104,
        "oid:oid pubname:name pubowner:oid puballtables:bool pubinsert:bool pubupdate:bool pubdelete:bool pubtruncate:bool pubviaroot:bool",
    ),
    empty("pg_publication_rel", 6106, "oid:oid prpubid:oid prrelid:oid prqual:pg_node_tree prattrs:int2vector"),
    empty("pg_publication_namespace", 6237, "oid:oid pnpubid:oid pnnspid:oid"),
    empty(
        "pg_subscription",
        6100,
        "oid:oid subdbid:oid subskiplsn:text subname:name subowner:oid subenabled:bool subbinary:bool substream:char subtwophasestate:char \
         subdisableonerr:bool subpasswordrequired:bool subrunasowner:bool subconninfo:text subslotname:name subsynccommit:text \
         subpublications:text[] suborigin:text",
    ),
    empty(
        "pg_statistic_ext",
        3381,
        "oid:oid stxrelid:oid stxname:name stxnamespace:oid stxowner:oid stxstattarget:int4 stxkeys:int2vector stxkind:char[] \
         stxexprs:pg_node_tree",
    ),
    empty(
        "pg_stats",
        12_202,
        "schemaname:name tablename:name attname:name inherited:bool null_frac:float4 avg_width:int4 n_distinct:float4 \
         most_common_vals:anyarray most_common_freqs:float4[] histogram_bounds:anyarray correlation:float4 most_common_elems:anyarray \
         most_common_elem_freqs:float4[] elem_count_histogram:float4[]",
    ),
    empty("pg_enum", 3501, "oid:oid enumtypid:oid enumsortorder:float4 enumlabel:name"),
    empty(
        "pg_range",
        3541,
        "rngtypid:oid rngsubtype:oid rngmultitypid:oid rngcollation:oid rngsubopc:oid rngcanonical:regproc rngsubdiff:regproc",
    ),
    empty("pg_shdepend", 1214, "dbid:oid classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid deptype:char"),
    empty("pg_cast", 2605, "oid:oid castsource:oid casttarget:oid castfunc:oid castcontext:char castmethod:char"),
    empty(
        "pg_operator",
        2617,
        "oid:oid oprname:name oprnamespace:oid oprowner:oid oprkind:char oprcanmerge:bool oprcanhash:bool oprleft:oid oprright:oid \
         oprresult:oid oprcom:oid oprnegate:oid oprcode:regproc oprrest:regproc oprjoin:regproc",
    ),
    empty(
        "pg_amop",
        2602,
        "oid:oid amopfamily:oid amoplefttype:oid amoprighttype:oid amopstrategy:int2 amoppurpose:char amopopr:oid amopmethod:oid \
         amopsortfamily:oid",
    ),
    empty("pg_amproc", 2603, "oid:oid amprocfamily:oid amproclefttype:oid amprocrighttype:oid amprocnum:int2 amproc:regproc"),
    empty(
        "pg_conversion",
        2607,
        "oid:oid conname:name connamespace:oid conowner:oid conforencoding:int4 contoencoding:int4 conproc:regproc condefault:bool",
    ),
    empty("pg_foreign_table", 3118, "ftrelid:oid ftserver:oid ftoptions:text[]"),
    empty(
        "pg_foreign_server",
        1417,
        "oid:oid srvname:name srvowner:oid srvfdw:oid srvtype:text srvversion:text srvacl:aclitem[] srvoptions:text[]",
    ),
    empty(
        "pg_foreign_data_wrapper",
        2328,
        "oid:oid fdwname:name fdwowner:oid fdwhandler:oid fdwvalidator:oid fdwacl:aclitem[] fdwoptions:text[]",
    ),
    empty("pg_user_mapping", 1418, "oid:oid umuser:oid umserver:oid umoptions:text[]"),
    empty("pg_user_mappings", 12_203, "umid:oid srvid:oid srvname:name umuser:oid usename:name umoptions:text[]"),
    empty("pg_event_trigger", 3466, "oid:oid evtname:name evtevent:name evtowner:oid evtfoid:oid evtenabled:char evttags:text[]"),
    empty("pg_default_acl", 826, "oid:oid defaclrole:oid defaclnamespace:oid defaclobjtype:char defaclacl:aclitem[]"),
    empty("pg_db_role_setting", 2964, "setdatabase:oid setrole:oid setconfig:text[]"),
    empty("pg_seclabel", 3596, "objoid:oid classoid:oid objsubid:int4 provider:text label:text"),
    empty("pg_shseclabel", 3592, "objoid:oid classoid:oid provider:text label:text"),
    empty(
        "pg_seclabels",
        12_204,
        "objoid:oid classoid:oid objsubid:int4 objtype:text objnamespace:oid objname:text provider:text label:text",
    ),
    empty("pg_init_privs", 3394, "objoid:oid classoid:oid objsubid:int4 privtype:char initprivs:aclitem[]"),
    empty("pg_transform", 3576, "oid:oid trftype:oid trflang:oid trffromsql:regproc trftosql:regproc"),
    empty("pg_ts_config", 3602, "oid:oid cfgname:name cfgnamespace:oid cfgowner:oid cfgparser:oid"),
    empty("pg_ts_dict", 3600, "oid:oid dictname:name dictnamespace:oid dictowner:oid dicttemplate:oid dictinitoption:text"),
    empty(
        "pg_ts_parser",
        3601,
        "oid:oid prsname:name prsnamespace:oid prsstart:regproc prstoken:regproc prsend:regproc prsheadline:regproc prslextype:regproc",
    ),
    empty("pg_ts_template", 3764, "oid:oid tmplname:name tmplnamespace:oid tmplinit:regproc tmpllexize:regproc"),
    empty("pg_largeobject_metadata", 2995, "oid:oid lomowner:oid lomacl:aclitem[]"),
    empty("pg_prepared_xacts", 12_206, "transaction:xid gid:text prepared:timestamptz owner:name database:name"),
    empty(
        "pg_locks",
        12_207,
        "locktype:text database:oid relation:oid page:int4 tuple:int2 virtualxid:text transactionid:xid classid:oid objid:oid objsubid:int2 \
         virtualtransaction:text pid:int4 mode:text granted:bool fastpath:bool waitstart:timestamptz",
    ),
    empty("pg_ts_config_map", 3603, "mapcfg:oid maptokentype:int4 mapseqno:int4 mapdict:oid"),
    empty("pg_parameter_acl", 6243, "oid:oid parname:text paracl:aclitem[]"),
    empty(
        "pg_policies",
        12_210,
        "schemaname:name tablename:name policyname:name permissive:text roles:name[] cmd:text qual:text with_check:text",
    ),
    empty("pg_publication_tables", 12_211, "pubname:name schemaname:name tablename:name attnames:name[] rowfilter:text"),
    empty("pg_stat_user_functions", 12_212, "funcid:oid schemaname:name funcname:name calls:int8 total_time:float8 self_time:float8"),
    empty(
        "pg_replication_slots",
        12_213,
        "slot_name:name plugin:name slot_type:text datoid:oid database:name temporary:bool active:bool active_pid:int4 xmin:xid \
         catalog_xmin:xid restart_lsn:text confirmed_flush_lsn:text wal_status:text safe_wal_size:int8 two_phase:bool conflicting:bool",
    ),
    empty(
        "pg_stat_replication",
        12_214,
        "pid:int4 usesysid:oid usename:name application_name:text client_addr:text client_hostname:text client_port:int4 \
         backend_start:timestamptz backend_xmin:xid state:text sent_lsn:text write_lsn:text flush_lsn:text replay_lsn:text \
         write_lag:interval flush_lag:interval replay_lag:interval sync_priority:int4 sync_state:text reply_time:timestamptz",
    ),
    empty(
        "pg_stat_subscription",
        12_215,
        "subid:oid subname:name pid:int4 leader_pid:int4 relid:oid received_lsn:text last_msg_send_time:timestamptz \
         last_msg_receipt_time:timestamptz latest_end_lsn:text latest_end_time:timestamptz",
    ),
    empty("pg_statio_all_sequences", 12_216, "relid:oid schemaname:name relname:name blks_read:int8 blks_hit:int8"),
    empty("pg_statio_user_sequences", 12_217, "relid:oid schemaname:name relname:name blks_read:int8 blks_hit:int8"),
];
