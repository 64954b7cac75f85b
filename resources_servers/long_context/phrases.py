"""The sentences of an archive: wordings of each kind of fact by genre, and prose without facts."""

from __future__ import annotations

GENRES = ("report", "letter", "log", "minutes", "inventory")

Phrases = dict[str, tuple[str, ...]]

FACTS: dict[str, Phrases] = {
    "reading": {
        "report": (
            "The inspection of the {thing} in {city} recorded the {attribute} {value}.",
            "For the {thing} in {city}, the {attribute} was found to be {value}.",
        ),
        "letter": (
            "You asked about the {thing} in {city}: its {attribute} is {value}.",
            "Please note down {value}, the {attribute} of the {thing} in {city}.",
        ),
        "log": (
            "Visited the {thing} in {city}, {attribute} {value}, nothing else to note.",
            "{person} read the {attribute} of the {thing} in {city}: {value}.",
        ),
        "minutes": (
            "{person} stated that the {thing} in {city} has the {attribute} {value}.",
            "It was noted that {value} is the {attribute} of the {thing} in {city}.",
        ),
        "inventory": (
            "One {thing}, {city}, {attribute} {value}, in good order.",
            "Listed for {city}: {thing} with the {attribute} {value}.",
        ),
    },
    "file": {
        "report": (
            "File {key} was found in box {value} during the audit.",
            "The audit traced file {key} to box {value}.",
        ),
        "letter": (
            "I have put file {key} back into box {value}.",
            "If you look for file {key}, open box {value}.",
        ),
        "log": ("Moved file {key} to box {value}.", "{person} returned file {key}, now in box {value}."),
        "minutes": (
            "It was agreed that file {key} stays in box {value}.",
            "{person} confirmed that file {key} is kept in box {value}.",
        ),
        "inventory": ("File {key}, box {value}, complete.", "Box {value} holds file {key} with its index."),
    },
    "link": {
        "report": (
            "Dial {dial} was wired to follow dial {source}.",
            "The tests show that dial {dial} follows dial {source}.",
        ),
        "letter": (
            "You will find that dial {dial} follows dial {source}.",
            "We connected dial {dial} so that it follows dial {source}.",
        ),
        "log": ("Dial {dial} now follows dial {source}.", "Checked that dial {dial} follows dial {source}."),
        "minutes": (
            "{person} explained that dial {dial} follows dial {source}.",
            "It was decided that dial {dial} follows dial {source}.",
        ),
        "inventory": ("Dial {dial}, follows dial {source}.", "One dial {dial}, wired to follow dial {source}."),
    },
    "setting": {
        "report": ("Dial {dial} was set to {value}.", "The tests show that dial {dial} is set to {value}."),
        "letter": (
            "You will find that dial {dial} is set to {value}.",
            "We connected dial {dial} and set it to {value}.",
        ),
        "log": ("Dial {dial} now set to {value}.", "Checked that dial {dial} is set to {value}."),
        "minutes": (
            "{person} explained that dial {dial} is set to {value}.",
            "It was decided that dial {dial} is set to {value}.",
        ),
        "inventory": ("Dial {dial}, set to {value}.", "One dial {dial}, wired and set to {value}."),
    },
    "delivery": {
        "report": (
            "Order {order}, {count} crates of {goods} for {city}, was {status}.",
            "The figures include order {order} to {city}: {count} crates of {goods}, {status}.",
        ),
        "letter": (
            "Your order {order} of {count} crates of {goods} for {city} was {status}.",
            "About order {order}: the {count} crates of {goods} for {city} were {status}.",
        ),
        "log": (
            "Order {order} at the gate in {city}, {count} crates of {goods}, {status}.",
            "{person} booked order {order} for {city}, {count} crates of {goods}, as {status}.",
        ),
        "minutes": (
            "{person} reported that order {order}, {count} crates of {goods} for {city}, was {status}.",
            "It was noted that order {order} for {city} with {count} crates of {goods} was {status}.",
        ),
        "inventory": (
            "Order {order}, {city}, {count} crates of {goods}, {status}.",
            "{count} crates of {goods}, {city}, order {order}, {status}.",
        ),
    },
    "wish": {
        "report": (
            "Asked where to hold {occasion}, {person} named {city}.",
            "As the place for {occasion}, {person} proposed {city}.",
        ),
        "letter": (
            "When I asked where to hold {occasion}, {person} answered {city}.",
            "For {occasion}, {person} would like to meet in {city}.",
        ),
        "log": (
            "Asked {person} where to hold {occasion}, answer {city}.",
            "{person} called about {occasion} and asked for {city}.",
        ),
        "minutes": (
            "On the place of {occasion}, {person} spoke for {city}.",
            "{person} moved that {occasion} be held in {city}.",
        ),
        "inventory": (
            "One reply card about {occasion}, {person}, {city}.",
            "Card of {person}, place for {occasion}, {city}.",
        ),
    },
    "event": {
        "report": (
            "On {date} the {thing} in {city} was {action}.",
            "The records show that the {thing} in {city} was {action} on {date}.",
        ),
        "letter": (
            "You may remember that on {date} the {thing} in {city} was {action}.",
            "As you wrote, the {thing} in {city} was {action} on {date}.",
        ),
        "log": (
            "Date looked up, {thing} in {city} {action} on {date}.",
            "Note for the file, on {date} the {thing} in {city} was {action}.",
        ),
        "minutes": (
            "{person} recalled that on {date} the {thing} in {city} was {action}.",
            "It was noted that the {thing} in {city} was {action} on {date}.",
        ),
        "inventory": ("The {thing} in {city}, {action} on {date}.", "Plaque, {date}, {thing} in {city} {action}."),
    },
}

PROSE: Phrases = {
    "report": (
        "The weather delayed the work in {city} by {number} days.",
        "All measurements were repeated, and the results agree with those of the year before.",
        "The staff in {city} were helpful and answered every question at once.",
        "Costs stayed within the budget, although prices for timber and steel have risen.",
        "A draft of this section was sent to {person} for comment.",
        "The annex lists the methods, the instruments and the persons involved.",
        "No complaints from neighbours were received during the period.",
        "We recommend that the next inspection take place before the first frost.",
    ),
    "letter": (
        "I hope that you and your family are well and that the garden has survived the storm.",
        "The trip to {city} was long, but the company of {person} made it pleasant.",
        "Thank you for the photographs, which arrived on a rainy morning.",
        "We have had {number} visitors since you left, and each of them asked about you.",
        "Please forgive the late reply, as the post has been slow again.",
        "The neighbours still talk about the concert, and not only because of the rain.",
        "If you come to {city} in spring, there will be a bed and a warm meal for you.",
        "My sister sends her regards and promises to write soon.",
    ),
    "log": (
        "Rounds finished without incident, lights off in the east wing.",
        "{person} took over the shift {number} minutes late because of the traffic.",
        "Rain since the early morning, gutters clear, yard swept.",
        "Telephone call from {city}, caller will try again tomorrow.",
        "Delivery van blocked the gate for {number} minutes, driver warned.",
        "Spare keys counted, all present.",
        "Heating switched to the night programme, windows closed.",
        "Visitor from {city} shown round by {person}.",
    ),
    "minutes": (
        "The chair welcomed the members and excused {person}, who was travelling.",
        "The minutes of the last meeting were approved without changes.",
        "{person} thanked the volunteers from {city} for their patience.",
        "After a short discussion the item was postponed to the next meeting.",
        "The treasurer presented the accounts, and {number} members asked questions.",
        "A proposal to repaint the hall was rejected by a small majority.",
        "{person} will draft a reply and circulate it before the end of the month.",
        "The meeting closed earlier than planned because the heating had failed.",
    ),
    "inventory": (
        "Shelves dusted and labels renewed, no losses.",
        "{number} folding chairs, two of them with a loose leg.",
        "Counted twice by {person}, same result.",
        "One carton of light bulbs, opened.",
        "Carpet from {city}, rolled up and wrapped in paper.",
        "{number} coat hangers, mixed colours.",
        "Paint in tins, dried out, to be thrown away.",
        "Maps of {city} and its surroundings, slightly faded.",
    ),
}
