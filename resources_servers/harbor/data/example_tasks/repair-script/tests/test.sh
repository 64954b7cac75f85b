#!/bin/bash
if [ "$(/app/greet.sh Ada)" = "Hello, Ada!" ] && [ "$(/app/greet.sh)" = "Hello, you!" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
