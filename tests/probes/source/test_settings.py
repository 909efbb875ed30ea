"""The batch size comes from a settings file, from the command line, or from another file."""

import textwrap

import pytest
from batchadvisor.probes.source.batch_size_source import find_batch_size_source
from batchadvisor.probes.source.settings_files import numbers_of
from batchadvisor.records import SourceLine

from .as_shown import shown

READS = "loader = DataLoader(ds, batch_size=cfg.train.batch_size)  # here\n"
TRAINER = """
from trl import SFTConfig, SFTTrainer, TrlParser
parser = TrlParser((ScriptArguments, SFTConfig))
script_args, training_args = parser.parse_args_and_config()
trainer = SFTTrainer(model, training_args, dataset)
trainer.train()  # here
"""


@pytest.fixture
def find(tmp_path):
    """Finds the size of a script that opened settings files, given as texts by name."""

    def _find(script, size=16, arguments=(), modules=(), **files):
        source = textwrap.dedent(script)
        (tmp_path / "train.py").write_text(source)
        opened = []
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            stem, _, suffix = path.name.rpartition("_")
            path = path.with_name(f"{stem}.{suffix}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
            opened.append((path, str(path.relative_to(tmp_path))))
        line = 1 + source.partition("# here")[0].count("\n")
        place = SourceLine(file=str(tmp_path / "train.py"), line=line)
        return find_batch_size_source(place, size, arguments, settings=opened, files=modules)

    return _find


def place(source):
    return f"{source.place}"


class TestSettingsFile:
    @pytest.mark.parametrize(
        ("name", "text", "line", "before"),
        [
            ("a_yaml", "train:\n  lr: 0.1\n  batch_size: 16  # each\n", 3, "batch_size: 16"),
            ("a_json", '{\n\t"train": {\n\t\t"batch_size": 16}}\n', 3, '"batch_size": 16'),
            ("a_json", '{"train": {"lr": 1, "batch_size": 16}}', 1, '"batch_size": 16'),
            ("a_toml", "[train]\nlr = 1\nbatch_size = 16 # each\n", 3, "batch_size = 16"),
            ("a_toml", "train.batch_size = 16\n", 1, "train.batch_size = 16"),
            ("a_toml", "train = { lr = 1, batch_size = 16 }\n", 1, "batch_size = 16"),
            ("a_ini", "[train]\nlr = 1\nbatch_size: 16 ; each\n", 3, "batch_size: 16"),
            ("a_cfg", "[net]\n; Training\n#batch=8\nbatch_size=16\n", 4, "batch_size=16"),
            ("a_yaml", "bs: &n 16\ntrain:\n  batch_size: *n\n", 1, "batch_size: &n 16"),
            ("a_yaml", "bs: 16\ntrain: {batch_size: '${bs}'}\n", 1, "batch_size: 16"),
            ("a_yaml", "base: &b {batch_size: 16}\ntrain:\n  <<: *b\n", 1, "batch_size: 16"),
        ],
    )
    def test_each_format(self, find, name, text, line, before):
        source = find(READS, **{name: text})
        assert source.place.file.startswith("a.")
        assert (source.place.line, source.before) == (line, before)
        assert source.template.format(32) == before.replace("16", "32")

    @pytest.mark.parametrize(
        "expression",
        [
            "cfg.train.batch_size",
            'cfg["train"]["batch_size"]',
            'int(cfg["train"].get("batch_size", 8))',
            "cfg.train.batch_size // ranks",
            "min(cfg.train.batch_size, len(ds))",
            "self.batch_size",
            "bs",
        ],
    )
    def test_however_it_is_read(self, find, expression):
        script = f"""
        class A:
            def f(self, cfg):
                self.batch_size = cfg.train.batch_size
                bs = cfg.train.batch_size
                loader = DataLoader(ds, batch_size={expression})  # here
        """
        source = find(script, a_yaml="eval:\n  batch_size: 16\ntrain:\n  batch_size: 16\n")
        assert place(source) == "a.yaml:4"

    def test_settings_that_a_loader_unpacks(self, find):
        script = 'loader = DataLoader(ds, **cfg["loader"])  # here\n'
        assert (
            place(find(script, a_yaml="batch_size: 16\nloader: {batch_size: 16}\n")) == "a.yaml:2"
        )

    def test_another_number_is_not_claimed(self, find):
        source = find(READS, a_yaml="train: {batch_size: 64}\n")
        assert (source.before, source.template) == ("batch_size: 64", "")

    @pytest.mark.parametrize(
        ("script", "files"),
        [
            (READS, {"a_yaml": "train: {num_workers: 16, eval_batch_size: 16}\n"}),
            (READS, {"a_yaml": "train: [\n", "b_json": "{", "c_toml": "[[["}),
            (READS, {"a_yaml": "batch_size: 1e4"}),
            ("BATCH = 16\nl = DataLoader(ds, BATCH)  # here\n", {"a_yaml": "batch_size: 16\n"}),
            ("l = DataLoader(ds, batch_size=16)  # here\n", {"a_yaml": "batch_size: 16\n"}),
        ],
    )
    def test_the_script_is_named_beside_other_keys_and_numbers(self, find, script, files):
        source = find(script, **files)
        assert source.place.file.endswith("train.py")
        assert (source.template == "") is (script == READS)

    def test_a_file_of_data_is_left_alone(self, tmp_path):
        path = tmp_path / "data.json"
        path.write_text('{"batch_size": 16, "text": "' + "x" * (1 << 18) + '"}')
        assert numbers_of(path, "data.json") == []


class TestMerged:
    """Settings of several files, or of several stages of one."""

    @pytest.mark.parametrize("other", [4, 16])
    def test_the_last_file_with_the_size_in_use(self, find, other):
        text = "train: {batch_size: 16}\n"
        source = find(READS, a_yaml=text.replace("16", str(other)), b_yaml=text)
        assert place(source) == "b.yaml:1"
        assert [(f"{each.place}", each.number) for each in source.others] == [("a.yaml:1", other)]

    def test_stages(self, find):
        text = "stages:\n- batch_size: 16\n- batch_size: 32\n- {test: {batch_size: 16}}\n"
        source = find("loader = DataLoader(ds, batch_size=stage.batch_size)  # here\n", a_yaml=text)
        assert place(source) == "a.yaml:2"
        assert [each.number for each in source.others] == [32]

    def test_a_group_of_hydra_is_a_folder(self, find):
        text = "batch_size: 16\n"
        source = find(READS, conf__train__base_yaml=text, conf__test__base_yaml=text)
        assert place(source) == "conf/train/base.yaml:1"
        assert source.others == ()

    def test_a_file_over_an_option(self, find):
        """The default of the option has another number, which the file replaced."""
        script = """
        parser.add_argument("-b", "--batch-size", type=int, default=128)
        loader = DataLoader(ds, batch_size=args.batch_size)  # here
        """
        source = find(script, a_yaml="batch_size: 16\n")
        assert (place(source), source.option) == ("a.yaml:1", "--batch-size")
        assert source.others == ()
        source = find(script.replace("128", "16"), a_yaml="batch_size: 16\n")
        assert place(source) == "a.yaml:1"
        assert [each.place.line for each in source.others] == [2]


class TestCommandLine:
    @pytest.mark.parametrize(
        "word", ["train.batch_size=16", "+train.batch_size=16", "--train.batch-size=16"]
    )
    def test_an_override_has_the_last_word(self, find, word):
        source = find(READS, arguments=("train.lr=1", word), a_yaml="train: {batch_size: 16}\n")
        assert source.before == word
        assert source.template.format(32) == word.replace("16", "32")

    def test_the_last_of_two_words(self, find):
        source = find(READS, arguments=("train.batch_size=16", "train.batch_size=8"), size=16)
        assert source.template == ""

    def test_a_trainer_that_the_users_code_did_not_call(self):
        words = ("finetune", "--train.micro_batch_size", "4", "--train.global_batch_size", "4")
        source = find_batch_size_source(None, 4, words)
        assert (source.place, source.before) == (None, "--train.micro_batch_size 4")
        assert find_batch_size_source(None, 4, ("--lr", "4")) is None


class TestTrainer:
    def test_its_settings_file(self, find):
        text = "per_device_eval_batch_size: 16\nper_device_train_batch_size: 16\nbatch_size: 16\n"
        assert place(find(TRAINER, a_yaml=text)) == "a.yaml:2"

    @pytest.mark.parametrize("dash", ["-", "_"])
    def test_its_flag(self, find, dash):
        flag = "--" + dash.join(["per", "device", "train", "batch", "size"])
        source = find(TRAINER, arguments=(flag, "16"))
        assert (source.before, source.template) == (f"{flag} 16", f"{flag} {{}}")

    def test_its_default(self, find):
        source = find(TRAINER, size=8)
        assert shown(source)[0] == 3
        assert source.template == "--per_device_train_batch_size {}"

    def test_a_field_of_a_dataclass(self, find):
        script = """
        @dataclass
        class Arguments(TrainingArguments):
            per_device_train_batch_size: int = field(default=16)
        Trainer(args=Arguments()).train()  # here
        """
        assert shown(find(script))[0] == 4

    def test_from_settings_of_another_name(self, find):
        script = """
        args = TrainingArguments("out", per_device_train_batch_size=cfg.train.bs)
        Trainer(args=args).train()  # here
        """
        text = "train:\n  bs: 16\n  micro_batch_size: 16\n"
        assert place(find(script, a_yaml=text)) == "a.yaml:2"


class TestOtherFiles:
    def test_a_field_in_another_file(self, find, tmp_path):
        config = tmp_path / "config.py"
        fields = "    batch_size: int = 16\n    other: int = f(batch_size=16)\n"
        config.write_text("class Train:\n" + fields)
        source = find(READS, modules=[str(config), str(tmp_path / "none.py")])
        assert place(source) == f"{config}:2"
        assert find(READS, size=8, modules=[str(config)]).template == ""
