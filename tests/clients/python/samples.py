"""One sample for each type of the engine: its name, PostgreSQL's OID for it, a value as Python has it, and the value's text as PostgreSQL writes it."""

import datetime
import decimal
import json
import uuid
from dataclasses import dataclass
from typing import Any

UTC = datetime.timezone.utc
ONE_UUID = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
TIME = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)
DOCUMENT = {"a": [1, None, "x"], "b": {"c": "{d}"}}


@dataclass
class Sample:
    type: str
    oid: int
    value: Any
    text: str
    # Of what a table can have as a column.
    is_stored: bool = True

    @property
    def array_of(self):
        return self.type.removesuffix("[]") if self.type.endswith("[]") else None

    def with_documents(self, value, change):
        """A value of the type with `change` done to each JSON document in it: to some clients these are texts, or objects of their own."""
        if value is None:
            return None
        if self.type in ("json", "jsonb"):
            return change(value)
        if self.array_of in ("json", "jsonb"):
            return [None if item is None else change(item) for item in value]
        return value


SAMPLES = [
    Sample("smallint", 21, -32768, "-32768"),
    Sample("integer", 23, 2147483647, "2147483647"),
    Sample("bigint", 20, -9223372036854775808, "-9223372036854775808"),
    Sample("real", 700, 0.5, "0.5"),
    Sample("double precision", 701, 0.1, "0.1"),
    Sample("boolean", 16, True, "t"),
    Sample("numeric(20, 4)", 1700, decimal.Decimal("-12345.6789"), "-12345.6789"),
    Sample("numeric(38, 0)", 1700, decimal.Decimal("12345678901234567890123456789012345678"), "12345678901234567890123456789012345678"),
    Sample("numeric", 1700, decimal.Decimal("0.25"), "0.25"),
    Sample("text", 25, "grüß 'quoted' \"double\" \\ \t\n end", "grüß 'quoted' \"double\" \\ \t\n end"),
    Sample("varchar(10)", 1043, "ten at mos", "ten at mos"),
    Sample("char(3)", 1042, "abc", "abc"),
    Sample("json", 114, DOCUMENT, json.dumps(DOCUMENT)),
    Sample("jsonb", 3802, DOCUMENT, json.dumps(DOCUMENT)),
    Sample("uuid", 2950, ONE_UUID, str(ONE_UUID)),
    Sample("bytea", 17, bytes(range(256)), "\\x" + bytes(range(256)).hex()),
    Sample("date", 1082, datetime.date(2024, 2, 29), "2024-02-29"),
    Sample("timestamp", 1114, TIME, "2024-02-29 12:34:56.789012"),
    Sample("timestamptz", 1184, TIME.replace(tzinfo=UTC), "2024-02-29 12:34:56.789012+00"),
    Sample("interval", 1186, datetime.timedelta(days=3, hours=4, seconds=5.5), "3 days 04:00:05.5", is_stored=False),
    Sample("smallint[]", 1005, [1, -2], "{1,-2}"),
    Sample("integer[]", 1007, [1, None, -2147483648], "{1,NULL,-2147483648}"),
    Sample("bigint[]", 1016, [9223372036854775807], "{9223372036854775807}"),
    Sample("real[]", 1021, [0.5, None], "{0.5,NULL}"),
    Sample("double precision[]", 1022, [0.1, -1e300], "{0.1,-1e+300}"),
    Sample("boolean[]", 1000, [True, None, False], "{t,NULL,f}"),
    Sample("numeric(10, 2)[]", 1231, [decimal.Decimal("1.25"), None], "{1.25,NULL}"),
    Sample("text[]", 1009, ["a,b", 'c"d', "", None, "{}", "NULL", "back\\slash"], '{"a,b","c\\"d","",NULL,"{}","NULL","back\\\\slash"}'),
    Sample("uuid[]", 2951, [ONE_UUID, None], f"{{{ONE_UUID},NULL}}"),
    Sample("date[]", 1182, [datetime.date(1969, 12, 31)], "{1969-12-31}"),
    Sample("timestamp[]", 1115, [TIME, None], '{"2024-02-29 12:34:56.789012",NULL}'),
    Sample("timestamptz[]", 1185, [TIME.replace(tzinfo=UTC)], '{"2024-02-29 12:34:56.789012+00"}'),
    Sample("bytea[]", 1001, [b"\x00\xff", b""], '{"\\\\x00ff","\\\\x"}'),
    Sample("varchar(10)[]", 1015, ["ten at mos", "a,b", None], '{"ten at mos","a,b",NULL}'),
    Sample("char(3)[]", 1014, ["abc", None, "xyz"], "{abc,NULL,xyz}"),
    Sample("json[]", 199, [{"a": [1, None]}, None], '{"{\\"a\\": [1, null]}",NULL}'),
    Sample("jsonb[]", 3807, [{"a": [1, None]}, None], '{"{\\"a\\": [1, null]}",NULL}'),
    Sample("interval[]", 1187, [datetime.timedelta(days=3, hours=4, seconds=5.5), None], '{"3 days 04:00:05.5",NULL}', is_stored=False),
]

# Infinities, the ends of ranges, and empty values.
EDGES = [
    ("real", float("inf")),
    ("double precision", float("-inf")),
    ("double precision", -0.0),
    ("double precision", 5e-324),
    ("text", ""),
    ("bytea", b""),
    ("text[]", []),
    ("numeric(10, 2)", decimal.Decimal("0.00")),
    ("date", datetime.date(1, 1, 1)),
    ("date", datetime.date(9999, 12, 31)),
    ("timestamp", datetime.datetime(1900, 1, 1, 0, 0, 0, 1)),
]
