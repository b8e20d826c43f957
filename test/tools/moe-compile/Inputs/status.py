"""status.py ARGUMENTS: runs moe-compile, prints what it says, and its exit status."""
import os
import shutil
import subprocess
import sys

program = shutil.which('moe-compile', path=os.environ['MOE_BIN'])
result = subprocess.run([program] + sys.argv[1:], stdin=sys.stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(result.stdout + 'exit status %d' % result.returncode)
