CREATE TABLE trail (trail_id INTEGER PRIMARY KEY, name TEXT, km REAL, park TEXT);
CREATE TABLE hike (hike_id INTEGER PRIMARY KEY, trail_id INTEGER REFERENCES trail (trail_id), hiker TEXT, minutes INTEGER);
INSERT INTO trail VALUES
    (1, 'Ridge', 12.5, 'North'), (2, 'Lake loop', 6.0, 'North'), (3, 'Gorge', 9.0, 'East'), (4, 'Fire tower', 4.5, 'East');
INSERT INTO hike VALUES (1, 1, 'Ana', 210), (2, 2, 'Ana', 95), (3, 2, 'Ben', 80), (4, 3, 'Cy', 150), (5, 2, 'Cy', 101);
