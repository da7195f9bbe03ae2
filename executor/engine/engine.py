"""One rank of a run: chunks, passes and optimizer, stepped together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from ...kernels.attention.rope import cached_tables, forget_tables
from ...kernels.dispatch import Dispatcher
from ...kernels.marks import mark
from ...spec.parallel.sequence_partition import drop_leading, input_tokens
from ...spec.plan.plan import LayerPlan, Plan
from ...spec.plan.send_buffers import send_buffer_release
from ...spec.report.trace_marks import READ_DATA, STEP, UPDATE
from ...spec.strategy import LayerStrategy
from ..data.prepared import PreparedBatches
from ..data.tasks import Batch, plan_task, select_tokens
from ..groups.process_groups import ProcessGroups
from ..host.transfers import finish, to_device
from ..models.block import Block
from ..models.document_attention import DocumentEnds
from ..pipeline.mailbox import Activations
from ..pipeline.routes import chunk_routes
from ..pipeline.runtime import ChunkPort, PipelineRuntime
from ..stage.chunk import TORCH_DTYPES, Chunk, build_chunk
from ..stage.chunk_backward import ChunkBackward
from ..stage.local_parameters import local_parameters
from ..stage.options import BuildOptions
from ..stage.technique_hooks import TechniqueHookList
from ..technique import NamedState
from .loss_scale import LossScale, scales_loss
from .optimizer_step import AdamWOptions, Updater
from .routers import BalanceResult, Routers


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one optimizer step."""

    loss: float
    gradient_norm: float
    time_s: float
    skipped: bool = False
    """True if gradients overflowed in fp16, so that no weight has changed."""
    balance: BalanceResult | None = None
    """Tallies of balanced routers; their losses are not in ``loss``."""


class Engine:
    """Builds this rank's part of a plan and runs steps.

    Args:
        batch: any sample of any step.
        last_step: last step of the run, where learning-rate decay may end.
        process_groups: this rank's groups, if they exist already.
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        options: BuildOptions,
        batch: Batch,
        adamw: AdamWOptions | None = None,
        last_step: int = 1,
        process_groups: ProcessGroups | None = None,
    ) -> None:
        self.plan = plan
        self.options = options
        self.batch = batch
        self.task = plan_task(plan)
        timeout_s = options.collective_timeout_s
        values = options.techniques.values
        self.process_groups = process_groups or ProcessGroups(
            plan, rank, options.device.type, timeout_s, values
        )
        chunk_plans = plan.program.stages[self.process_groups.stage].virtual_stages
        self.kernels = Dispatcher(options.kernels)
        self.chunks = [
            build_chunk(plan, number, self.process_groups, options, self.kernels)
            for number in range(len(chunk_plans))
        ]
        parameters = local_parameters(plan, self.chunks, self.process_groups)
        self.parameters = [p for p in parameters if p.trained]
        self.frozen = [p for p in parameters if not p.trained]
        self.technique_hooks = self._start_techniques()
        self.parameters = [self.technique_hooks.relocated(p) for p in self.parameters]
        clip = plan.workload.gradient_clip_norm
        self.adamw = adamw or AdamWOptions()
        self.last_step = last_step
        self.updater = Updater(
            self.parameters,
            self.process_groups,
            clip,
            self.adamw,
            self.kernels,
            self.technique_hooks,
            plan.workload.optimizer,
        )
        self.loss_scale = LossScale() if scales_loss(plan.workload.dtype.param) else None
        self.routers = Routers(
            plan, self.chunks, self.process_groups, options, self.technique_hooks
        )
        self.runtime = self._make_runtime(chunk_plans)
        self.step_index = 0

    def resident_tensors(self) -> list[Tensor]:
        """Tensors that live between steps: weights, states, angle tables."""
        tensors = self.updater.resident_tensors()
        tensors += [state.tensor for state in self.technique_hooks.state().values()]
        tensors += self.routers.resident_tensors()
        return self.weight_tensors() + tensors + cached_tables()

    def weight_tensors(self) -> list[Tensor]:
        """This rank's weights on any tier, including both copies of offloaded ones."""
        parameters = (*self.parameters, *self.frozen)
        copies = (p.device_tensor for p in parameters)
        return [p.data for p in parameters] + [copy for copy in copies if copy is not None]

    def technique_state(self) -> dict[str, NamedState]:
        """Technique and router states that checkpoints save, by name."""
        return self.technique_hooks.state() | self.routers.state()

    def load_technique_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore technique and router states, tensor by tensor.

        Raises:
            InputError: an entry is missing, unknown, or of another form.
        """
        own = self.routers.state()
        self.routers.load_state(tensors)
        self.technique_hooks.load_state({n: t for n, t in tensors.items() if n not in own})

    def weights_changed(self) -> None:
        """Notify techniques of loaded weights or states: their copies are stale."""
        self.technique_hooks.relocated_changed()

    def close(self) -> None:
        """Free groups and tables. Collective; no use afterwards."""
        dist.barrier()
        self.technique_hooks.close()
        self.process_groups.close()
        forget_tables()

    def _start_techniques(self) -> TechniqueHookList:
        """Start this rank's techniques and attach them to their chunks."""
        layers = {
            index: (
                strategy,
                tuple(p for p in self.parameters if p.layer == index),
            )
            for chunk in self.chunks
            for index, strategy in chunk.strategies.items()
        }
        modules = {int(key): m for chunk in self.chunks for key, m in chunk.layers.items()}
        technique_hooks = TechniqueHookList(
            self.plan, self.process_groups, self.options, layers, modules
        )
        for chunk in self.chunks:
            if any(technique_hooks.is_active(index) for index in chunk.strategies):
                chunk.technique_hooks = technique_hooks
        return technique_hooks

    def _make_runtime(self, chunk_plans: tuple[tuple[LayerPlan, ...], ...]) -> PipelineRuntime:
        process_groups = self.process_groups
        order = self.plan.program.passes(process_groups.stage)
        until = send_buffer_release(self.plan.program, process_groups.stage)
        ports = [self._make_port(index) for index in range(len(chunk_plans))]
        dtype = TORCH_DTYPES[self.plan.workload.dtype.param]
        return PipelineRuntime(
            ports,
            order,
            until,
            process_groups.rank,
            process_groups.channel,
            dtype,
            self.options.device,
            self.routers,
        )

    def _make_port(self, index: int) -> ChunkPort:
        chunk = self.chunks[index]
        source, target = chunk_routes(
            self.plan, self.process_groups.stage, index, self.process_groups.local_rank
        )
        splits, dtype = self.plan.program.splits_backward, self.plan.workload.dtype
        backward = ChunkBackward(chunk, splits, source is not None, dtype)
        return ChunkPort(
            run=lambda inputs, micro_batch: self._run_chunk(chunk, inputs, micro_batch),
            around_backward=backward.around,
            end_backward=backward.end,
            weights=backward.weights,
            source=source,
            target=target,
        )

    def _run_chunk(self, chunk: Chunk, inputs: Activations | None, micro_batch: int) -> Activations:
        task, strategies = self.task, chunk.strategies
        if self.plan.workload.lengths is not None:
            self._set_documents(chunk, micro_batch)
        feeds = {
            n: self._data(micro_batch, strategies[n], partial(task.feed, n), task.leading)
            for n in chunk.data_layers
        }
        if not chunk.has_head:
            out: Activations = chunk(inputs or (), feeds)
            return out
        targets = self._data(micro_batch, chunk.last_strategy, self.task.targets)
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        scale /= self.plan.workload.global_batch * self.task.losses
        loss: Activations = chunk(inputs or (), feeds, targets, scale)
        return loss

    def _data(
        self,
        micro_batch: int,
        strategy: LayerStrategy,
        part: Callable[[Tensor], Tensor],
        leading: int = 0,
    ) -> Tensor:
        """This rank's tokens of its micro-batch records, after ``leading`` class tokens."""
        with mark(READ_DATA):
            records = part(self._read(micro_batch, strategy))
            tokens = input_tokens(
                strategy, self.process_groups.local_rank, records.shape[0] + leading
            )
            local = select_tokens(records, drop_leading(tokens, leading))
            return to_device(local, self.options.device)

    def _read(self, micro_batch: int, strategy: LayerStrategy) -> Tensor:
        samples = self.process_groups.samples(strategy)
        start = micro_batch * self.plan.program.micro_batch_samples
        rows = [self.batch(self.step_index, start + i) for i in range(samples.first, samples.end)]
        return torch.stack(rows, dim=1)

    def _set_documents(self, chunk: Chunk, micro_batch: int) -> None:
        for index, module in chunk.layers.items():
            if isinstance(module, Block):
                module.documents = self._documents(micro_batch, chunk.strategies[int(index)])

    def _documents(self, micro_batch: int, strategy: LayerStrategy) -> DocumentEnds | None:
        """Ends of the documents of this rank's samples; None in a dry run, which has no data."""
        if not isinstance(self.batch, PreparedBatches):
            return None
        samples = self.process_groups.samples(strategy)
        start = micro_batch * self.plan.program.micro_batch_samples
        numbers = range(start + samples.first, start + samples.end)
        return tuple(self.batch.documents(self.step_index, number) for number in numbers)

    def backward_step(self, before_norm: Callable[[], None] | None = None) -> Tensor:
        """Forward and backward of one global batch; (norm, loss) float64, then routers' tallies.

        ``before_norm`` is called before this rank joins the global norm.
        """
        for chunk in self.chunks:
            chunk.begin_step()
        self.technique_hooks.begin_step()
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        self.routers.begin_step(self.step_index, scale)
        loss = self.runtime.step()
        if before_norm is not None:
            before_norm()
        with mark(UPDATE):
            self.updater.finish_gradients()
            norm_and_loss = self.updater.gradient_norm_and_loss(
                loss, self._loss_replicas(), self.routers.tally()
            )
            if self.loss_scale is not None:
                self.updater.unscale(self.loss_scale.value)
                norm_and_loss[:2] /= self.loss_scale.value
            return norm_and_loss

    def _loss_replicas(self) -> int:
        return next((c.loss_replicas for c in self.chunks if c.has_head), 1)

    def step(
        self,
        before_update: Callable[[], None] | None = None,
        before_norm: Callable[[], None] | None = None,
    ) -> StepResult:
        """One optimizer step, timed by the device's work, not its launches.

        ``before_update`` is called between complete gradients and the update, ``before_norm``
        before this rank joins the global norm.
        """
        device = self.options.device
        finish(device)
        start_s = time.perf_counter()
        with mark(STEP):
            norm_and_loss = self.backward_step(before_norm)
            if before_update is not None:
                before_update()
            self.technique_hooks.before_update()
            skipped = self._update(norm_and_loss[0])
            if not skipped:
                self.routers.finish(norm_and_loss[2:])
            self.technique_hooks.end_step()
            norm, loss = norm_and_loss[:2].tolist()
            finish(device)
        self.step_index += 1
        time_s = time.perf_counter() - start_s
        balance = self.routers.result(norm_and_loss[2:]) if self.routers.tallies else None
        return StepResult(loss, norm, time_s, skipped, balance)

    def dry_run_step(self) -> None:
        """One step that reads no values, for fake tensors."""
        norm = self.backward_step()[0]
        self.technique_hooks.before_update()
        self.updater.update(norm, self.adamw.learning_rate.peak)
        self.technique_hooks.end_step()

    def _update(self, norm: Tensor) -> bool:
        """Update the weights unless fp16 gradients overflowed; return whether they did.

        fp16 makes the host wait for the norm before the update; other formats need not.
        """
        overflowed = self.loss_scale is not None and not math.isfinite(norm.item())
        with mark(UPDATE):
            if overflowed:
                self.updater.drop_gradients()
            else:
                rate = self.adamw.learning_rate.at(self.step_index, self.last_step)
                self.updater.update(norm, rate)
        if self.loss_scale is not None:
            self.loss_scale.after(overflowed)
        return overflowed
