CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, voice TEXT, joined_year INTEGER);
CREATE TABLE concert (id INTEGER PRIMARY KEY, place TEXT, year INTEGER);
CREATE TABLE performed (singer_id INTEGER REFERENCES singer (id), concert_id INTEGER REFERENCES concert (id));
INSERT INTO singer VALUES
    (1, 'Ada', 'tenor', 2020), (2, 'Bo', 'alto', 2011), (3, 'Bo', 'soprano', 2020), (4, 'Cleo', 'bass', 2009),
    (5, 'Dag', 'soprano', 2020), (6, 'Eva', 'soprano', 2019);
INSERT INTO concert VALUES (1, 'mill', 2020), (2, 'mill', 2020), (3, 'harbour', 2018), (4, 'garden', 2023);
INSERT INTO performed VALUES (1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (2, 3), (5, 3);
