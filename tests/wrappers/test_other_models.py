"""Test main.py on folders that are not GPT-2, which run in transformers."""

import json
import re
from functools import partial

import numpy as np
import pytest

import main
from page import live
from page.page import stored_run
from run.flags import parse_args
from run.rounds import name_of, round_as_data
from run.task import load_task
from sampling import with_sampling
from speculative import Round, autoregressive_sampling, verify
from tests.commands import json_of_run, outcome, records_of, refusal, run_main
from tests.wrappers.families import random_model, torch, transformers
from tools import survey, will_it_pay
from utils import MODELS_DIR, load_model
from wrappers.transformers_model import TransformersModel

transformers.utils.logging.disable_progress_bar()
N_TOKENS = 4098  # of the bundled tokenizer and two more; the models have four rows more
TURN, END = N_TOKENS - 2, N_TOKENS - 1  # special tokens: of a chat, and of the model's answer
TEMPLATE = ("{% for message in messages %}<|turn|>{{ message.role }}: {{ message.content }}"
            "{% endfor %}{% if add_generation_prompt %}<|turn|>model:{% endif %}")
SHORT = ("--prompt", "One day", "--n_tokens_to_generate", 8)
FEW = ("--dtype", "float64", "--n_tokens_to_generate", "8")  # of each line of --prompts


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return folders of random models with the bundled tokenizer, as one for chats."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS_DIR / "tales-small")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>", "<|end|>"]})
    tokenizer.chat_template = TEMPLATE
    made = {}
    for seed, name in enumerate(("olmo2", "granite", "mamba")):
        folder = tmp_path_factory.mktemp(name)
        model = random_model(name, torch.float32, seed, vocab_size=N_TOKENS + 4)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made[name] = str(folder)
    return made


def pair_of(folders):
    """Return the flags that choose the Granite as the draft and the OLMo as the target."""
    return "--draft_model_size", folders["granite"], "--target_model_size", folders["olmo2"]


def flags_of(folders, *more):
    """Return the flags of a short run of this pair."""
    return (*pair_of(folders), *SHORT, *more)


def greedy_ids(target, x):
    """Return the 8 tokens that follow x in the target's own greedy text."""
    rows = with_sampling(target, temperature=0)
    return autoregressive_sampling(x, rows, 8, np.random.default_rng(0))[len(x) :]


@pytest.mark.parametrize("decoder", ["speculative", "tree", "stopping"])
def test_a_decoder_writes_the_targets_own_greedy_text(folders, decoder):
    run = json_of_run(*flags_of(folders, "--decoder", decoder, "--dtype", "float64"))
    tokenizer, target = load_model(folders["olmo2"], dtype="float64")
    assert isinstance(target, TransformersModel) and target.n_vocab == N_TOKENS
    assert run[decoder]["ids"] == greedy_ids(target, tokenizer.encode("One day"))
    assert run["identical"]
    assert run["product"].startswith("PyTorch") and run["settings"]["backend"] == "transformers"


def test_a_draft_of_another_kind_and_a_gpt2_through_transformers(folders):
    run = json_of_run("--draft_model_size", "tales-small",
                  "--target_model_size", folders["olmo2"], *SHORT)
    assert run["identical"] and run["settings"]["backend"] == "numba"
    ours = json_of_run(*SHORT, "--dtype", "float64")
    theirs = json_of_run(*SHORT, "--dtype", "float64", "--backend", "transformers")
    assert theirs["speculative"]["ids"] == ours["speculative"]["ids"]
    assert theirs["product"] != ours["product"]


def test_many_prompts_have_the_text_of_each_alone_as_a_survey_writes_it(folders, tmp_path):
    words = (*pair_of(folders), *FEW)
    status, (first, second), _ = records_of(tmp_path, ["One day", "A king"], *words)
    alone = json_of_run(*flags_of(folders, "--dtype", "float64"))
    assert status == 0 and first["ids"] != second["ids"]
    assert first["ids"] == alone["speculative"]["ids"]
    rounds = survey.written_text(words, {"prompt": "A king"}, 1).rounds
    assert [token for result in rounds for token in result.ids] == second["ids"]


CHAT = [{"role": "user", "content": "A king"}]


def test_messages_are_a_prompt_by_the_chat_template(folders, tmp_path):
    flags = (*pair_of(folders), *FEW)
    lines = [{"messages": CHAT, "id": 7}, {"prompt": "A king"}, {"messages": "A king"},
             {"messages": CHAT, "prompt": ""}]
    status, (chat, plain, *bad), _ = records_of(tmp_path, lines, *flags)
    assert status == 3
    assert chat["prompt"] == "<|turn|>user: A king<|turn|>model:"
    assert chat["messages"] == CHAT and chat["id"] == 7
    tokenizer, target = load_model(folders["olmo2"], dtype="float64")
    x = [TURN, *tokenizer.encode_bytes(b"user: A king"), TURN,
         *tokenizer.encode_bytes(b"model:")]
    assert chat["ids"] == greedy_ids(target, x)
    assert chat["answer"] == tokenizer.decode(chat["ids"])
    assert "answer" not in plain and plain["ids"] != chat["ids"]
    not_messages, both = (record["error"] for record in bad)
    assert not_messages.startswith('line 3: need messages [{"role": .., "content": ..')
    assert both.startswith('line 4: "messages" and "prompt" are both given: ')
    # The same command finds all records written.
    assert records_of(tmp_path, lines, *flags)[:2] == (3, [chat, plain, *bad])


def test_messages_need_a_chat_template(tmp_path):
    lines = [{"messages": CHAT}, "One day"]
    status, (chat, _), _ = records_of(tmp_path, lines, "--backend", "transformers", *FEW)
    assert chat["error"].startswith("line 1: this tokenizer has no chat template: give a ")
    assert status == 3 and json.loads(chat["prompt"]) == {"messages": CHAT}


def test_a_round_shows_the_names_of_special_tokens(folders):
    tokenizer, _ = load_model(folders["olmo2"])
    rows = np.zeros((2, tokenizer.n_vocab))
    rows[:, [TURN, END]] = [[0.75, 0.25], [0.25, 0.75]]
    result = Round([TURN, END], [TURN], p_draft=rows[:1], p_target=rows, n_accepted=1)
    data = round_as_data(result, [0.1, 0.9], verify, partial(name_of, tokenizer))
    assert data["guesses"][0]["text"] == "<|turn|>"
    first, second = ([text for _, text, *_ in row["top"]] for row in data["rows"])
    assert first == ["<|turn|>", "<|end|>"] and second == ["<|end|>", "<|turn|>"]


def test_a_model_without_a_longest_text(folders, tmp_path):
    flags = ("--json", "--target_model_size", folders["mamba"], "--decoder", "lookup", *SHORT)
    numbers, windowed = (  # on standard error is that this model's cache cannot go back
        json.loads(run_main(*flags, *more)[1])
        for more in (("--trace", tmp_path / "run.html"), ("--window",)))
    assert numbers["n_ctx"] is None and not numbers["window_moved"]  # JSON has no infinity
    assert len(numbers["lookup"]["ids"]) == 8 and stored_run(tmp_path / "run.html")["rounds"]
    assert windowed["lookup"]["ids"] == numbers["lookup"]["ids"]


def test_the_live_page_runs_such_a_model(folders):
    task = load_task(parse_args([*map(str, flags_of(folders))]))
    sent = []
    asked = {"prompt": "One day", "decoder": "speculative", "K": 2, "seed": 1,
             "n_tokens_to_generate": 6, "temperature": 1}
    live.send_rounds(live.task_of(task, asked), sent.append)
    text = json.dumps(sent, allow_nan=False)
    assert sum(len(message["round"]["ids"]) for message in sent[1:-1]) == 6, text
    assert "form" in live.live_page(task)


@pytest.mark.parametrize("decoder", ["quantized", "medusa"])
def test_a_decoder_that_reads_weights_is_refused(folders, decoder):
    flags = ("--target_model_size", folders["olmo2"], *SHORT, "--decoder", decoder)
    why = refusal(main.main, *flags)
    assert why.startswith(f"main.py: --decoder {decoder} needs") and "weights" in why


def test_will_it_pay_answers_for_such_a_pair(folders, tmp_path):
    """No `quantized` runs, because the weights of such a model cannot be copied here."""
    prompts = "One day\n" + json.dumps({"messages": CHAT})
    (tmp_path / "prompts").write_text(prompts, encoding="utf-8")
    status, out, err = outcome(
        will_it_pay.main, "--target", folders["olmo2"], "--draft", folders["granite"], "--N", 4,
        "--repeats", 1, "--temperature", 1, "--prompts", tmp_path / "prompts",
        "--json", tmp_path / "pay.json")
    assert status == 0, err
    figures = json.loads((tmp_path / "pay.json").read_text(encoding="utf-8"))
    case, = figures["cases"]
    assert [name for name in case["rows"] if not name.startswith("--K")] == [
        "--decoder stopping", "--decoder tree --widths auto"]
    assert f"Temperature 1: {case['answer']['words']}" in out
    assert "matrix products by PyTorch" in out


@pytest.mark.parametrize("draft", ["granite", "fewer rows"])
def test_a_tokenizer_may_have_more_tokens_than_its_model_has_rows(folders, tmp_path, draft):
    """Then neither the text nor a pattern has such a token."""
    cut = tmp_path / "cut"
    random_model("olmo2", torch.float32, seed=5, vocab_size=END).save_pretrained(cut)
    transformers.AutoTokenizer.from_pretrained(folders["olmo2"]).save_pretrained(cut)
    draft = folders["granite"] if draft == "granite" else cut
    pair = ("--draft_model_size", draft, "--target_model_size", cut, *SHORT)
    assert max(json_of_run(*pair, "--temperature", 1)["speculative"]["ids"]) < END
    text = json_of_run(*pair, "--regex", "[a-c]{5,20}")["speculative"]["text"]
    assert re.fullmatch("One day[a-c]{1,20}", text.removesuffix("<|endoftext|>"))


def test_a_backend_that_runs_neither_model_is_refused(folders):
    """A draft that is a GPT-2 runs with it."""
    flags = (*SHORT, "--backend", "numpy", "--target_model_size", folders["olmo2"])
    words = f"--backend numpy does not apply to {folders['olmo2']}, because transformers"
    for more in (("--draft_model_size", folders["granite"]), ("--decoder", "lookup")):
        assert words in refusal(main.main, *flags, *more)
    assert run_main(*flags, "--draft_model_size", "tales-small")[0] == 0
