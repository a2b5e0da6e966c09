"""Coverage-guided fuzzing with atheris (pip install atheris).

    python -m tests.fuzz encoder -max_total_time=600      # or folder, or arguments

Further flags are libFuzzer's. New cases go to a folder in the temporary one; those worth keeping
belong in tests/fuzz/corpus, which every test run goes through.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["encoder", "utils", "lib", "main",
                                         "sampling", "variants", "json", "argparse"]):
    from tests.fuzz.targets import TARGETS, corpus

target, *flags = sys.argv[1:]
folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{target}-corpus"))
for name, data in corpus(target).items():
    (folder / name).write_bytes(data)
atheris.Setup([sys.argv[0], str(folder), *flags], TARGETS[target])
atheris.Fuzz()
