CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, voice TEXT, joined_year INTEGER);
CREATE TABLE concert (id INTEGER PRIMARY KEY, place TEXT, year INTEGER);
CREATE TABLE performed (singer_id INTEGER REFERENCES singer (id), concert_id INTEGER REFERENCES concert (id));
INSERT INTO singer VALUES
    (1, 'Ines', 'alto', 2015), (2, 'Tove', 'soprano', 2018), (3, 'Omar', 'bass', 2018), (4, 'Pia', 'soprano', 2021);
INSERT INTO concert VALUES (1, 'town hall', 2019), (2, 'harbour', 2021), (3, 'town hall', 2022);
INSERT INTO performed VALUES (1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (4, 3), (1, 3), (3, 3);
