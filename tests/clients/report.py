"""The table of clients from a run's results, held against `docs/compatibility.md`: `report.py [--update] RESULTS PAGE`.

Exits with 1 if a check failed that is no known gap of the page, if a known gap passed, or if the page's table is not that of the run.
"""

import os
import sys
from dataclasses import dataclass, field

BEGIN = "<!-- clients: begin. Written by `tests/clients/run --update`. -->"
END = "<!-- clients: end -->"
GAPS = "## Known gaps"
# Of these the system has the version that it has; the page names the first number.
FROM_THE_SYSTEM = {"psql"}


@dataclass
class Client:
    version: str = ""
    checks: dict = field(default_factory=dict)


def read_results(lines):
    """Of each client in the order of its run; and who was skipped, with the reason."""
    clients, skipped = {}, {}
    for line in lines:
        parts = line.rstrip("\n").split(" | ", 2)
        if len(parts) != 3:
            continue
        name, check, outcome = parts
        if check == "skipped":
            skipped[name] = outcome
            continue
        client = clients.setdefault(name, Client())
        if check == "version":
            client.version = outcome.split(".")[0] if name in FROM_THE_SYSTEM else outcome
        elif check in client.checks:
            client.checks[check] = "FAILED two checks have this name: the outcome of one would hide that of the other"
        else:
            client.checks[check] = outcome
    return clients, skipped


def read_gaps(page):
    """Rows of the table under "Known gaps": (client, check)."""
    _, _, rest = page.partition(GAPS)
    rows = [cells(line) for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return {(row[0], row[1].strip("`")) for row in rows[2:]}


def cells(line):
    return [cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")]


def judge(clients, gaps):
    """What is wrong, in lines."""
    wrong = []
    for name, client in clients.items():
        for check, outcome in client.checks.items():
            is_known = (name, check) in gaps
            if outcome != "passed" and not is_known:
                wrong.append(f"{name} | {check} | {outcome}")
            if outcome == "passed" and is_known:
                wrong.append(f"{name} | {check} | passes, and is a known gap of docs/compatibility.md: take it out")
        wrong += [f"{name} | {check} | is a known gap, and no check" for of, check in gaps if of == name and check not in client.checks]
    return sorted(wrong)


def table(clients, gaps):
    lines = ["| client | version | checks | passed | known gaps |", "|---|---|---|---|---|"]
    for name, client in clients.items():
        if client.version:
            passed = sum(outcome == "passed" for outcome in client.checks.values())
            known = sum((name, check) in gaps for check in client.checks)
            lines.append(f"| {name} | {client.version} | {len(client.checks)} | {passed} | {known} |")
    return lines


def of_page(page):
    between = page.partition(BEGIN)[2].partition(END)[0]
    return [line for line in between.splitlines() if line]


def main():
    update = "--update" in sys.argv
    results, page_path = [argument for argument in sys.argv[1:] if argument != "--update"]
    with open(results) as file:
        clients, skipped = read_results(file)
    with open(page_path) as file:
        page = file.read()
    gaps = read_gaps(page)
    found = table(clients, gaps)
    wrong = judge(clients, gaps)
    for name, why in skipped.items():
        print(f"skipped: {name}: {why}")
        wrong += [f"{name} | skipped | {why}"] if os.environ.get("ROLLOUTDB_CLIENTS_ALL") else []
    print("", *found, sep="\n")
    if update:
        # Rows of clients that did not run stay as they are.
        names = [line.split(" | ")[0] for line in found]
        rows = found + [line for line in of_page(page)[2:] if line.split(" | ")[0] not in names]
        head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
        with open(page_path, "w") as file:
            file.write(head + BEGIN + "\n" + "\n".join(rows) + "\n" + END + tail)
    else:
        wrong += [f"docs/compatibility.md | its table has not: {row}" for row in found if row not in of_page(page)]
    print("", *(wrong or ["Every check passed, or is a known gap."]), sep="\n")
    if skipped:
        print(f"\nBUT {len(skipped)} CLIENTS WERE SKIPPED, AND NONE OF THEIR CHECKS RAN: {', '.join(skipped)}. The reasons stand above the table.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
