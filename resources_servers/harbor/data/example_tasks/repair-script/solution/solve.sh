#!/bin/bash
sed -i 's/\$2/${1:-you}/' /app/greet.sh
