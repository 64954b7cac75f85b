"""Run a program in a folder, as the first process of a sandbox and an unprivileged user."""

import os
import sys

NOBODY = 65534

if __name__ == "__main__":
    _, folder, *command = sys.argv
    os.chdir(folder)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.execvp(command[0], command)
