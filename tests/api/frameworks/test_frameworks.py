"""The conformance suite of frameworks, which each inherits."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest
from checks.exportable_plans import random_plans

from shardwright.api.frameworks.export_plan import export_plan
from shardwright.api.frameworks.framework import Framework
from shardwright.api.frameworks.framework_file import framework_file
from shardwright.api.frameworks.import_plan import imported
from shardwright.api.frameworks.shipped import FRAMEWORKS, framework_of
from shardwright.api.planning.report import simulate_plan
from shardwright.api.problem.resolve import Inputs
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError
from shardwright.spec.rules.stack_limits import stack_plan_violations

SHAPE = ("read", "limits")
WRITING = ("write", "launch")


class FrameworkSuite:
    """What every framework does."""

    framework: Framework
    refused: str
    """A text that a key without a counterpart makes unreadable, with that key's name."""
    refused_key: str
    plain: str
    """A small file with a key that changes nothing."""
    name: str
    unknown = "made_up_key"

    def test_shape(self):
        room = f"shardwright.api.frameworks.{self.framework.name.replace('-', '_')}"
        modules = SHAPE if self.framework.write is None else (*SHAPE, *WRITING)
        for module in modules:
            assert import_module(f"{room}.{module}").__doc__
        assert import_module(f"{room}.framework").FRAMEWORK is self.framework
        assert self.framework in FRAMEWORKS
        assert stack(self.framework.stack).name == self.framework.stack

    def test_narrowing_only_takes_away(self):
        wide = stack(self.framework.stack)
        narrow = self.framework.narrow(wide)
        assert set(narrow.schedules) <= set(wide.schedules)
        assert set(narrow.recompute) <= set(wide.recompute)
        assert set(narrow.limits.axes) <= set(wide.limits.axes)
        kept = {name.partition("=")[0] for name in narrow.limits.techniques}
        assert kept <= set(wide.limits.techniques)
        assert narrow == self.framework.narrow(narrow)

    def _import(self, text: str):
        file = framework_file(text, self.name)
        assert framework_of(file, None) is self.framework
        given = Inputs(cluster="8xH100-80GB", model="llama-3-8b", seq_len=2048)
        if "global_batch" in self.framework.outside:
            given = replace(given, global_batch=64)
        if "seq_len" not in self.framework.outside and self.framework.write is not None:
            given = replace(given, seq_len=None)
        if self.framework.write is None:
            given = replace(given, seq_len=None)
        return imported(file, self.framework, given, {})

    def test_unknown_keys_are_listed(self):
        read = self._import(self.plain)
        assert any(self.unknown in key for key in read.ignored)

    def test_what_changes_the_price_is_refused_by_name(self):
        with pytest.raises(InputError, match=self.refused_key):
            self._import(self.refused)


class WrittenSuite(FrameworkSuite):
    """What every framework does whose files are written too."""

    def test_plans_inside_are_read_as_they_were_written(self):
        for plan, priced in random_plans(self.framework, 4, seed=0):
            made = export_plan(plan, priced, None, self.framework)
            assert made.lost == ()
            assert made.plan == plan
            assert made.cost_s == 0
            assert made.launch

    def test_plans_outside_name_what_was_lost_and_its_cost(self):
        for plan, priced in random_plans(self.framework, 1, seed=1, inside=False):
            made = export_plan(plan, priced, None, self.framework)
            assert made.lost
            narrow = self.framework.narrow(stack(self.framework.stack))
            assert not stack_plan_violations(made.plan, narrow)
            steps = [
                simulate_plan(p, priced, None, ()).report.prediction.step_time_s
                for p in (plan, made.plan)
            ]
            assert made.cost_s == steps[1] - steps[0]


def framework(name: str) -> Framework:
    return next(item for item in FRAMEWORKS if item.name == name)


class TestMegatron(WrittenSuite):
    framework = framework("megatron")
    name = "run.args"
    plain = (
        "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512 "
        "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 64 --bf16 "
        "--vocab-size 1000 --made-up-key 3"
    )
    refused = plain + " --use-megatron-fsdp"
    refused_key = "use_megatron_fsdp"


class TestMegatronBridge(WrittenSuite):
    framework = framework("megatron-bridge")
    name = "run_config.yaml"
    plain = (
        "model:\n  num_layers: 4\n  hidden_size: 256\n  num_attention_heads: 4\n"
        "  seq_length: 512\n  vocab_size: 1000\n  made_up_key: 3\n"
        "train:\n  micro_batch_size: 1\n  global_batch_size: 64\nmixed_precision: bf16_mixed\n"
    )
    refused = plain + "ddp:\n  use_megatron_fsdp: true\n"
    refused_key = "use_megatron_fsdp"

    def test_saved_members_and_lists_are_read(self):
        text = self.plain.replace(
            "  made_up_key: 3\n",
            "  attention_backend:\n    _target_: megatron.core.transformer.enums.AttnBackend\n"
            "    _call_: true\n    _args_: [3]\n  recompute_granularity: selective\n"
            "  recompute_modules: [core_attn]\n  add_bias_linear: false\n"
            "  gated_linear_unit: true\n  activation_func:\n"
            "    _target_: torch.nn.functional.silu\n    _call_: false\n"
            "  share_embeddings_and_output_weights: false\n",
        )
        given = Inputs(cluster="8xH100-80GB")
        read = imported(framework_file(text, self.name), self.framework, given, {})
        assert read.problem.stack.attention == "unfused"
        assert not read.plan.model.tie_embeddings
        flash = text.replace("[3]", "[1]")
        read = imported(framework_file(flash, self.name), self.framework, given, {})
        assert read.problem.stack.attention == "flash"
        assert {s.recompute for s in read.plan.layer_strategies()} == {"selective", "none"}
        bad = text.replace("functional.silu", "functional.tanh")
        with pytest.raises(InputError, match="activation_func"):
            imported(framework_file(bad, self.name), self.framework, given, {})
        bad = text.replace("bf16_mixed", "fp16_with_mxfp8_mixed")
        with pytest.raises(InputError, match="mixed_precision"):
            imported(framework_file(bad, self.name), self.framework, given, {})


class TestTorchtitan(WrittenSuite):
    framework = framework("torchtitan")
    name = "run.toml"
    plain = (
        '[model]\nname = "llama3"\nflavor = "8B"\nmade_up_key = 1\n'
        '[training]\nlocal_batch_size = 8\nseq_len = 512\n[activation_checkpoint]\nmode = "full"\n'
    )
    refused = plain.replace('"full"', '"selective"\nselective_ac_option = "2"')
    refused_key = "selective_ac_option"


class TestDeepspeed(WrittenSuite):
    framework = framework("deepspeed")
    name = "ds.json"
    plain = (
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, '
        '"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "made_up_key": 1}'
    )
    refused = plain.replace('"stage": 3', '"stage": 3, "zero_quantized_weights": true')
    refused_key = "zero_quantized_weights"


class TestAccelerate(WrittenSuite):
    framework = framework("accelerate")
    name = "acc.yaml"
    plain = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nmade_up_key: 2\n"
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
    )
    refused = plain + "fp8_config:\n  backend: TE\n"
    refused_key = "fp8_config.backend"


class TestAxolotl(FrameworkSuite):
    framework = framework("axolotl")
    name = "ax.yaml"
    plain = (
        "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 2\nsequence_len: 4096\n"
        "bf16: true\nmade_up_key: 1\n"
    )
    refused = plain + "relora: true\n"
    refused_key = "relora"


class TestLlamaFactory(FrameworkSuite):
    framework = framework("llama-factory")
    name = "lf.yaml"
    plain = (
        "model_name_or_path: Qwen/Qwen3-4B-Instruct-2507\nfinetuning_type: lora\nstage: sft\n"
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nmade_up_key: 1\n"
    )
    refused = plain + "use_galore: true\n"
    refused_key = "use_galore"
