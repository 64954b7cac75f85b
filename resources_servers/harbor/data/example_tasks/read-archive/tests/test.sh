#!/bin/bash
if [ "$(cat /app/peak.txt)" = "05:20" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
