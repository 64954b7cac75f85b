#!/bin/bash
cd /app/inbox
mkdir logs
mv ./*.log logs/
find . -maxdepth 1 -type f -empty -delete
