#!/bin/bash
gunzip -c /app/readings.gz | sort -n -k 2 | tail -n 1 | cut -d ' ' -f 1 > /app/peak.txt
