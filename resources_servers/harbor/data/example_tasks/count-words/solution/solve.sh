#!/bin/bash
python3 - <<'END'
import collections, json
words = open("text.txt").read().split()
json.dump(collections.Counter(words), open("counts.json", "w"))
END
