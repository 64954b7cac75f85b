"""The generated company, and companies parsed from files."""

import csv
import hashlib
from collections import Counter
from datetime import datetime, timedelta

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import dump_line
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.csv_files import read_company
from resources_servers.workplace_assistant.database import TODAY, Company

COMPANY = made_up_company()
TABLES = {"emails": 500, "events": 300, "tasks": 300, "customers": 200}
FILES = {
    "emails": "emails.csv",
    "events": "calendar_events.csv",
    "tasks": "project_tasks.csv",
    "customers": "customer_relationship_manager_data.csv",
}
TASK_HEADER = "task_id,task_name,assigned_to_email,list_name,due_date,board\n"


def content(company: Company):
    return [
        *([*getattr(company, name).rows.values()] for name in TABLES),
        list(company.visits),
        list(company.addresses),
    ]


def written(company: Company, folder):
    """Write a company as CSV files, with line breaks escaped as in WorkBench."""
    for name, file in FILES.items():
        write(folder / file, getattr(company, name).columns, getattr(company, name).rows.values())
    write(folder / "analytics_data.csv", list(company.visits[0]), company.visits)
    (folder / "email_addresses.csv").write_text("\n".join(company.addresses))
    return folder


def write(path, columns, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows([row[column].replace("\n", "\\n") for column in columns] for row in rows)


def test_company_is_always_the_same():
    # Rows refer to its ids, so a change requires regenerating all rows, including the examples.
    digest = hashlib.sha256(dump_line(content(COMPANY))).hexdigest()
    assert digest[:16] == "2b76346364647ee0"
    assert content(made_up_company(1)) != content(COMPANY)


def test_ids_are_consecutive_eight_digit_numbers():
    wrong = [
        (name, count, found)
        for name, count in TABLES.items()
        if (found := sorted(getattr(COMPANY, name).rows)) != [f"{number:08}" for number in range(count)]
    ]
    assert wrong == []


def test_meetings_are_in_working_hours_without_overlaps():
    end = datetime.min
    for row in sorted(COMPANY.events.rows.values(), key=lambda row: row["event_start"]):
        start = datetime.fromisoformat(row["event_start"])
        assert start >= end
        assert start.hour >= 9
        assert start.weekday() < 5
        end = start + timedelta(minutes=int(row["duration"]))
        assert end <= start.replace(hour=18, minute=0)


def test_first_names_and_email_times_are_unique():
    names = [address.split(".")[0] for address in COMPANY.addresses]
    assert len(set(names)) == len(names) == 20
    sent = Counter(row["sent_datetime"] for row in COMPANY.emails.rows.values())
    assert max(sent.values()) == 1
    assert max(sent) < TODAY
    customers = COMPANY.customers.values("customer_name")
    assert len(customers) == 200


def test_company_round_trips_through_files(tmp_path):
    assert content(read_company(written(COMPANY, tmp_path))) == content(COMPANY)


def test_byte_order_marks_of_spreadsheets_are_skipped(tmp_path):
    for path in written(COMPANY, tmp_path).iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert content(read_company(tmp_path)) == content(COMPANY)


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("emails.csv", None, "cannot be read (No such file or directory)"),
        ("emails.csv", "", "email_id, inbox/outbox, "),
        ("calendar_events.csv",
         "event_id,event_name,event_start,duration\n",
         "1: missing columns: participant_email. Columns found: event_id, event_name, event_start, duration."),
        ("project_tasks.csv", TASK_HEADER + "1,2\n", "2: 2 values for 6"),
        ("project_tasks.csv", TASK_HEADER + "x,b,c,d,e,f\n", "2: task_id: 'x' is not a number"),
        ("project_tasks.csv", TASK_HEADER + "1,b,c,d,e,f\n1,b,c,d,e,f\n", "3: task_id: 1 is already used"),
        ("analytics_data.csv",
         "date_of_visit,visitor_id,page_views,session_duration_seconds,traffic_source,user_engaged\na,b,c,long,e,f\n",
         "2: session_duration_seconds: 'long'"),
        ("email_addresses.csv", b"\xff", "not UTF-8"),
    ],
)  # fmt: skip
def test_invalid_table_is_reported_with_its_line(tmp_path, file, text, problem):
    path = written(COMPANY, tmp_path) / file
    path.unlink()
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as failure:
        read_company(tmp_path)
    assert str(failure.value).startswith(f"{path}:")
    assert problem in str(failure.value)


def test_additional_columns_and_address_header_are_ignored(tmp_path):
    path = written(COMPANY, tmp_path) / "project_tasks.csv"
    path.write_text("board,size,due_date,list_name,assigned_to_email,task_name,task_id\na,9,b,c,d,e,00000001\n")
    (tmp_path / "email_addresses.csv").write_text("email\n a@b.c \n\n")
    company = read_company(tmp_path)
    assert list(company.tasks.rows["00000001"].values()) == ["00000001", "e", "d", "c", "b", "a"]
    assert company.addresses == ("a@b.c",)
