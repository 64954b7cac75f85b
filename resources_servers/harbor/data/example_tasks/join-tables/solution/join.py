"""Join the tables."""

import csv

with open("/app/people.csv") as file:
    people = list(csv.DictReader(file))
with open("/app/cities.csv") as file:
    countries = {row["city"]: row["country"] for row in csv.DictReader(file)}
people.sort(key=lambda row: row["name"])
with open("/app/joined.csv", "w") as file:
    print("name,city,country", file=file)
    for row in people:
        if row["city"] in countries:
            print(row["name"], row["city"], countries[row["city"]], sep=",", file=file)
with open("/app/missing.txt", "w") as file:
    for row in people:
        if row["city"] not in countries:
            print(row["name"], file=file)
