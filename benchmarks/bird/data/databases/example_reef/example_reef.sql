CREATE TABLE site (SiteCode TEXT PRIMARY KEY, SiteName TEXT, MaxDepth REAL, Region TEXT);
CREATE TABLE survey (
    SurveyID INTEGER PRIMARY KEY,
    SiteCode TEXT REFERENCES site (SiteCode),
    SurveyDate TEXT,
    Observer TEXT,
    `Water Temp (C)` REAL
);
CREATE TABLE sighting (SurveyID INTEGER REFERENCES survey (SurveyID), Species TEXT, Number INTEGER, IsJuvenile INTEGER);
INSERT INTO site VALUES
    ('N1', 'Lantern Wall', 32.5, 'north'), ('N2', 'Cathedral', 18.0, 'north'), ('S1', 'The Steps', 9.5, 'south'),
    ('S2', 'Old Anchor', 24.0, 'south'), ('E1', 'Long Shadow', 40.0, 'east');
INSERT INTO survey VALUES
    (1, 'N1', '2021-03-14', 'Okoro', 19.5), (2, 'N1', '2022-03-20', 'Lind', 21.0), (3, 'N2', '2022-07-02', 'Lind', 24.5),
    (4, 'S1', '2021-08-30', 'Okoro', 26.0), (5, 'S2', '2022-08-11', 'Marsh', NULL), (6, 'S1', '2023-01-05', 'Marsh', 17.0);
INSERT INTO sighting VALUES
    (1, 'moray', 2, 0), (1, 'grouper', 5, 0), (2, 'grouper', 3, 1), (2, 'turtle', 1, 0), (3, 'turtle', 2, 1),
    (3, 'grouper', 7, 0), (4, 'wrasse', 30, 1), (4, 'wrasse', 12, 0), (5, 'moray', 1, 0), (6, 'wrasse', 8, 0);
