"""OpenAI's checkpoints, a format of TensorFlow's: read once for each model, then never again.

    model.ckpt.index, model.ckpt.data-*    names and shapes; the numbers, each with its checksum

TensorFlow knows the format, and the checksums; what is written here only keeps it quiet.
"""

import contextlib
import os


@contextlib.contextmanager
def silent_stderr():
    """Nothing reaches file descriptor 2: TensorFlow's C++ writes notes there, come what may."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def open_weights(folder, n_bytes):
    """A function `name -> array` over a TensorFlow checkpoint of at least n_bytes of weights."""
    data = folder / "model.ckpt.data-00000-of-00001"
    if not data.is_file() or not (folder / "model.ckpt.index").is_file():
        raise ValueError(f"need plain files for the checkpoint in {folder}")
    if data.stat().st_size < n_bytes:
        raise ValueError(f"need {n_bytes} bytes of weights for the sizes in hparams.json, got "
                         f"{data.stat().st_size} in {data}")
    try:
        with silent_stderr():
            import tensorflow as tf  # here: seconds and 600 MB, needed once for each checkpoint
    except ImportError as error:
        raise ValueError("need TensorFlow to read OpenAI's checkpoint format, once for each model "
                         f"(pip install tensorflow), got: {error}") from None

    def read(action, what):
        try:
            with contextlib.chdir(folder):  # TensorFlow takes \ [ * ? in a path for patterns
                return action()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            reason = str(error).strip().split("\n")[0][:200]
            raise ValueError(f"need a whole TensorFlow checkpoint in {folder}, got for {what}: "
                             f"{reason}") from None

    reader = read(lambda: tf.train.load_checkpoint("model.ckpt"), "model.ckpt.index")
    return lambda name: read(lambda: reader.get_tensor(f"model/{name}"), f"model/{name}")
