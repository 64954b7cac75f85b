CREATE TABLE trail (trail_id INTEGER PRIMARY KEY, name TEXT, km REAL, park TEXT);
CREATE TABLE hike (hike_id INTEGER PRIMARY KEY, trail_id INTEGER REFERENCES trail (trail_id), hiker TEXT, minutes INTEGER);
INSERT INTO trail VALUES
    (1, 'Coast', 20.0, 'West'), (2, 'Dunes', 9.5, 'West'), (3, 'Bog', 7.0, 'South'), (4, 'Mast', 2.5, 'South'),
    (5, 'Ravine', 11.0, 'South');
INSERT INTO hike VALUES (1, 1, 'Dee', 300), (2, 3, 'Dee', 88), (3, 5, 'Eli', 190), (4, 5, 'Flo', 175), (5, 1, 'Flo', 290);
