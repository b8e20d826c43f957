"""options.py PROGRAM SOURCE: the long options in the table of SOURCE are those that PROGRAM --help lists."""
import re
import subprocess
import sys

text = subprocess.run([sys.argv[1], '--help'], stdout=subprocess.PIPE, text=True, check=True).stdout
listed = set(re.findall(r'^ +(?:-\w, )?--([a-z-]+)', text, re.MULTILINE))
taken = set(re.findall(r'\{"([a-z-]+)", (?:no|required|optional)_argument', open(sys.argv[2]).read()))
assert taken, 'no options found in ' + sys.argv[2]
assert listed == taken, 'only in one of both: %s' % sorted(listed ^ taken)
