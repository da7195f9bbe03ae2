"""The conformance suite of frameworks, which each inherits."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from checks.exportable_plans import random_plans

from shardwright.api.frameworks.export_plan import export_plan
from shardwright.api.frameworks.framework import Framework
from shardwright.api.frameworks.framework_file import framework_file
from shardwright.api.frameworks.import_plan import import_plan, imported
from shardwright.api.frameworks.keep_to import kept_to
from shardwright.api.frameworks.shipped import FRAMEWORKS, framework_of
from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_chunks import strategy_chunks
from shardwright.api.problem.resolve import Inputs
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError
from shardwright.spec.rules.stack_limits import stack_plan_violations

FOLDER = Path(__file__).parent / "samples"
SAMPLES = tomllib.loads((FOLDER / "index.toml").read_text(encoding="utf-8"))["sample"]
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

    def said(self):
        """The stack with what files say of it."""
        return self.framework.narrow(stack(self.framework.stack))

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
            assert not stack_plan_violations(made.plan, self.said())
            steps = [
                simulate_plan(p, priced, None, ()).report.prediction.step_time_s
                for p in (plan, made.plan)
            ]
            assert made.cost_s == steps[1] - steps[0]


def read_sample(sample):
    given = {name: sample[name] for name in ("model", "seq_len") if name in sample}
    inputs = Inputs(cluster=f"{sample['devices']}xH100-80GB", **given)
    return import_plan(str(FOLDER / sample["file"]), None, inputs, {})


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


ONES, ZEROS = (",".join([digit] * 32) for digit in "10")


class TestGalvatron(WrittenSuite):
    framework = framework("galvatron")
    name = "galvatron.json"
    plain = (
        f'{{"pp_deg": 2, "tp_sizes_enc": "{ONES}", "dp_types_enc": "{ZEROS}", "global_bsz": 64, '
        f'"chunks": 4, "checkpoint": "{ONES}", "default_dp_type": "zero2", '
        '"pipeline_type": "gpipe", "made_up_key": 1}'
    )
    refused = plain.replace(
        f'"tp_sizes_enc": "{ONES}"',
        f'"tp_sizes_enc": "{ONES.replace("1", "2")}", "tp_consecutive_flags": "{ZEROS}"',
    )
    refused_key = "tp_consecutive_flags"

    def said(self):
        return stack("galvatron")

    @pytest.mark.parametrize("number", range(61, 67))
    def test_published_strategies_are_written_as_they_were_read(self, number):
        sample = next(s for s in SAMPLES if s["file"] == f"galvatron-{number}.json")
        read = read_sample(sample)
        made = export_plan(read.plan, read.problem.stack, None, self.framework)
        assert made.lost == ()
        assert made.plan == read.plan

    def test_layers_keep_their_own_strategies(self):
        read = read_sample(next(s for s in SAMPLES if s["file"] == "galvatron-63.json"))
        taken = read.plan.layer_strategies()
        assert {s.tp for s in taken} == {1, 2}
        odd = replace(taken[3], recompute="selective", shard=replace(taken[3].shard, parameters=1))
        strategies = [odd if n in (3, 4, 5) else own for n, own in enumerate(taken)]
        boundaries = (0, 17, len(taken))
        chunks = strategy_chunks(read.plan.model, boundaries, strategies)
        stages = tuple(
            replace(stage, virtual_stages=(chunk,))
            for stage, chunk in zip(read.plan.program.stages, chunks, strict=True)
        )
        plan = replace(read.plan, programs=(replace(read.plan.program, stages=stages),))
        assert not plan.check()
        made = export_plan(plan, stack("shardwright"), None, self.framework)
        assert [(c.what, c.given) for c in made.lost] == [("recompute", "selective in 3 layers")]
        assert [s.tp for s in made.plan.layer_strategies()] == [s.tp for s in taken]
        assert [s.shard for s in made.plan.layer_strategies()] == [s.shard for s in strategies]

    @pytest.mark.parametrize(
        ("old", "new", "match"),
        [
            ('"pp_deg": 2', '"pp_deg": 3', "pp_deg"),
            ('"pp_deg": 2', '"pp_deg": 2, "world_size": 16', "world_size"),
            ('"chunks": 4', '"chunks": 0', "chunks"),
            ('"chunks": 4', '"chunks": 5', "global_bsz"),
            ('"chunks": 4', '"chunks": 4, "pp_division": "20,11"', "pp_division"),
            ('"chunks": 4', '"chunks": 4, "use_sp": "1,1"', "use_sp: got 2 values"),
            ('"chunks": 4', '"chunks": 4, "vtp": 3', "vtp"),
            ('"chunks": 4', '"chunks": 4, "embed_sdp": 0, "vocab_sdp": 1', "vocab_sdp"),
            ('"gpipe"', '"zero_bubble"', "pipeline_type"),
            (f'"{ONES}", "dp', f'"{ONES},1", "dp', "dp_types_enc"),
            (f'"tp_sizes_enc": "{ONES}"', f'"tp_sizes_enc": "{ONES[:-1]}3"', "tp_sizes_enc"),
            (f'"tp_sizes_enc": "{ONES}"', '"tp_sizes_enc": {"a": 1}', "pp_deg"),
            (f'"checkpoint": "{ONES}"', f'"checkpoint": "{ONES[:-1]}2"', "checkpoint"),
        ],
    )
    def test_values_are_refused_by_key(self, old, new, match):
        assert old in self.plain
        with pytest.raises(InputError, match=match):
            self._import(self.plain.replace(old, new))

    def test_another_model_is_refused(self):
        given = Inputs(cluster="8xH100-80GB", model="gpt2", seq_len=512)
        with pytest.raises(InputError, match="a model of 32 blocks"):
            imported(framework_file(self.plain, self.name), self.framework, given, {})


class TestVerl(WrittenSuite):
    framework = framework("verl")
    name = "verl.yaml"
    plain = (
        "actor_rollout_ref:\n  actor:\n    strategy: fsdp2\n    ppo_mini_batch_size: 64\n"
        "    ppo_micro_batch_size_per_gpu: 2\n    made_up_key: 1\n  rollout:\n    n: 4\n"
    )
    refused = plain + "    free_cache_engine: false\n"
    refused_key = "free_cache_engine"
    megatron = plain.replace("fsdp2", "megatron").replace(
        "    made_up_key: 1\n",
        "    megatron:\n      tensor_model_parallel_size: ${.tp}\n      tp: 2\n"
        "      pipeline_model_parallel_size: ${oc.select:no.such,2}\n"
        "      override_transformer_config:\n        recompute_granularity: full\n"
        "        recompute_modules: [core_attn]\n",
    )

    def test_a_step_is_a_mini_batch_of_answers(self):
        plan = self._import(self.plain).plan
        assert plan.workload.global_batch == 64 * 4
        assert plan.workload.seq_len == 1024
        assert {s.recompute for s in plan.layer_strategies()} == {"full", "none"}
        dynamic = self.plain.replace("made_up_key: 1", "use_dynamic_bsz: true")
        assert self._import(dynamic).plan.program.schedule.micro_batch == 16

    def test_the_engine_of_megatron_reads_references(self):
        read = self._import(self.megatron)
        assert read.problem.stack.name.startswith("megatron")
        strategy = read.plan.layer_strategies()[1]
        assert (strategy.tp, len(read.plan.program.stages)) == (2, 2)
        assert strategy.sequence_parallel == "megatron"
        assert strategy.recompute == "full"
        made = export_plan(read.plan, read.problem.stack, None, self.framework)
        assert "strategy: megatron" in made.files["verl.yaml"]
        assert made.lost == ()
        assert made.plan == read.plan

    def test_adapters_are_written(self):
        text = self.plain.replace(
            "  rollout:", "  model:\n    lora_rank: 8\n    target_modules: [q_proj]\n  rollout:"
        )
        read = self._import(text)
        assert read.plan.workload.adapters.targets == ("query",)
        made = export_plan(read.plan, read.problem.stack, None, self.framework)
        assert made.lost == ()
        assert made.plan == read.plan

    @pytest.mark.parametrize(
        ("old", "new", "match"),
        [
            ("fsdp2", "torchtitan", "actor.strategy"),
            ("    ppo_micro_batch_size_per_gpu: 2\n", "", "ppo_micro_batch_size_per_gpu"),
            ("made_up_key: 1", "ulysses_sequence_parallel_size: 3", "ulysses"),
            ("made_up_key: 1", "fsdp_config: {fsdp_size: 3}", "fsdp_size"),
            ("made_up_key: 1", "fsdp_config: {model_dtype: int8}", "model_dtype"),
            ("made_up_key: 1", "optim: {optimizer: Shampoo}", "optim.optimizer"),
            ("made_up_key: 1", "qat: {enable: true}", "qat.enable"),
            ("  rollout:\n", "  model: {enable_activation_offload: true}\n  rollout:\n",
             "activation_offload"),
            ("actor_rollout_ref:", "trainer: {nnodes: 4}\nactor_rollout_ref:", "trainer.nnodes"),
        ],
    )  # fmt: skip
    def test_values_are_refused_by_key(self, old, new, match):
        assert old in self.plain
        with pytest.raises(InputError, match=match):
            self._import(self.plain.replace(old, new))

    def test_what_megatron_refuses_is_refused_here(self):
        bad = self.megatron.replace("recompute_granularity: full", "cpu_offloading: true")
        with pytest.raises(InputError, match="cpu_offloading"):
            self._import(bad)

    def test_its_stacks_are_two(self):
        question = Inputs(model="gpt2", cluster="1x2xH100-80GB", global_batch=4, seq_len=512)
        assert kept_to("verl", question)[0].stack.name == "verl"
        kept = kept_to("verl", replace(question, stack="megatron:loss=fused"))[0]
        assert kept.stack.name == "megatron:loss=fused"
        assert "gpipe" not in kept.stack.schedules
        with pytest.raises(InputError, match="verl or megatron"):
            kept_to("verl", replace(question, stack="torchtitan"))
