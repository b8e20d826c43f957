"""status.py ARGUMENTS: runs moe-kernels, prints what it says, and its exit status."""
import os
import shutil
import subprocess
import sys

program = shutil.which('moe-kernels', path=os.environ['MOE_BIN'])
result = subprocess.run([program] + sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(result.stdout + 'exit status %d' % result.returncode)
