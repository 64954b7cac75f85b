#!/bin/bash
python3 /solution/join.py
