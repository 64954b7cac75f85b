CREATE TABLE farm (id INTEGER PRIMARY KEY, name TEXT, hectares REAL, joined TEXT);
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    farm_id INTEGER REFERENCES farm (id),
    grain TEXT,
    kg INTEGER,
    moisture REAL,
    day TEXT
);
INSERT INTO farm VALUES
    (1, 'Hill End', 40.0, '1998-05-01'), (2, 'Low Meadow', 25.0, '2004-09-15'), (3, 'Three Oaks', 80.0, '2011-02-28'),
    (4, 'New Barn', 12.5, '2023-10-01');
INSERT INTO delivery VALUES
    (1, 1, 'wheat', 12000, 13.5, '2023-08-02'), (2, 1, 'rye', 4000, 15.2, '2023-08-09'),
    (3, 2, 'wheat', 9000, 14.8, '2023-08-05'), (4, 2, 'oats', 3000, 12.0, '2023-08-20'),
    (5, 3, 'wheat', 30000, 13.9, '2023-08-03'), (6, 3, 'wheat', 18000, 16.1, '2023-09-01'),
    (7, 3, 'rye', 7000, 14.1, '2023-09-02');
