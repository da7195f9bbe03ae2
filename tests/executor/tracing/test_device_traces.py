"""A device's step from its profiled events: overlap, copies, graphs, threads, numbers."""

from __future__ import annotations

import pytest
from checks.profiled_events import Event, host, kernel

from shardwright.executor.tracing.device_segments import own_term
from shardwright.executor.tracing.timeline import (
    critical_rank,
    measured_breakdown,
    measured_timeline,
)
from shardwright.executor.tracing.traced_step import rank_trace
from shardwright.spec.report.timeline import Timeline, from_perfetto
from shardwright.spec.report.trace_marks import (
    COMMUNICATE_CP,
    COMMUNICATE_NORM,
    COMMUNICATE_TP,
    READ_DATA,
    STEP,
    UPDATE,
)

NS = 1e-9


def timeline(*ranks: list[Event]) -> Timeline:
    made = measured_timeline([rank_trace(events) for events in ranks])
    assert made.overlapping() == []
    assert from_perfetto(made.to_perfetto(), "here").overlapping() == []
    return made


def terms_ns(made: Timeline, rank: int = 0) -> dict[str, float]:
    """Terms of a rank in ns; they add up to the step."""
    found = measured_breakdown(made, rank)
    assert sum(found.values()) == pytest.approx(made.step_time_s)
    return {term: pytest.approx(time_s / NS) for term, time_s in found.items() if time_s > 1e-12}


def test_communication_that_a_kernel_hides_is_not_exposed() -> None:
    made = timeline(
        [
            host(STEP, 0, 1000),
            host("FSDP::all_gather (layers.1)", 10, 40),
            host("c10d::_allgather_base_", 15, 35, number=1),
            host("aten::mm", 50, 60, number=2),
            kernel("ncclDevKernel_AllGather_RING_LL", 100, 500, linked=1, stream=20),
            kernel("nvjet_tst_128x256", 200, 700, linked=2),
        ]
    )
    assert terms_ns(made) == {"host": 100 + 300, "exposed_dp": 100, "matmul": 500}
    streams = {(s.stream.kind, s.stream.name) for s in made.spans}
    assert streams == {("host", "host"), ("communication", "dp 20"), ("compute", "compute 7")}


def test_kernels_of_two_streams_lie_beside_each_other() -> None:
    made = timeline(
        [
            host(STEP, 0, 400),
            host("aten::mm", 0, 10, number=1),
            host("fsdp::all_gather_copy_in", 10, 20, number=2),
            kernel("gemm", 100, 300, linked=1, stream=7),
            kernel("copy", 200, 350, linked=2, stream=13),
        ]
    )
    assert terms_ns(made) == {"host": 150, "matmul": 200, "elementwise": 50}


def test_a_host_copy_hides_behind_kernels_and_else_is_the_hosts_time() -> None:
    made = timeline(
        [
            host(STEP, 0, 300),
            host(READ_DATA, 0, 50),
            host("aten::copy_", 5, 45, number=1),
            host("aten::embedding", 60, 70, number=2),
            kernel("Memcpy HtoD (Pinned -> Device)", 20, 120, linked=1, stream=9),
            kernel("indexSelectLargeIndex", 90, 280, linked=2),
        ]
    )
    assert terms_ns(made) == {"host": 20 + 70 + 20, "elementwise": 190}
    (copy,) = (s.stream for s in made.spans if s.stream.kind == "host_copy")
    assert copy.name == "to device 9"


def test_one_launch_of_a_graph_starts_kernels_of_many_terms() -> None:
    made = timeline(
        [
            host(STEP, 0, 1000),
            host("pass F 0 0", 0, 90, number=1),
            kernel("sm90_xmma_gemm_bf16", 100, 300, linked=1),
            kernel("flash_fwd_kernel", 300, 450, linked=1),
            kernel("triton_poi_fused_add_0", 450, 500, linked=1),
            kernel("ncclDevKernel_ReduceScatter", 500, 650, linked=1, stream=20),
        ]
    )
    assert terms_ns(made) == {
        "host": 100 + 350,
        "matmul": 200,
        "attention": 150,
        "elementwise": 50,
        "exposed_dp": 150,
    }
    assert {s.details.get("pass") for s in made.spans} == {"pass F 0 0", None}


@pytest.mark.parametrize(
    ("name", "term"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "exposed_dp"),
        ("Memcpy DtoH (Device -> Pinned)", "host"),
        ("Memcpy DtoD (Device -> Device)", "elementwise"),
        ("Memset (Device)", "elementwise"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90>", "attention"),
        ("fmha_cutlassF_bf16_aligned", "attention"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16>", "matmul"),
        ("triton_tem_fused_mm_0", "matmul"),
        ("void at::native::vectorized_elementwise_kernel", "elementwise"),
    ],
)
def test_what_a_kernels_own_name_says(name: str, term: str) -> None:
    assert own_term(name) == term


@pytest.mark.parametrize(
    ("mark", "term"), [(COMMUNICATE_TP, "exposed_tp"), (COMMUNICATE_CP, "exposed_cp")]
)
def test_the_backward_pass_runs_on_a_thread_of_its_own(mark: str, term: str) -> None:
    made = timeline(
        [
            host(STEP, 0, 1000),
            host("pass B 0 0", 10, 600),
            host("autograd::engine::evaluate_function: MmBackward0", 20, 500, thread=2),
            host("aten::mm", 30, 60, number=5, thread=2),
            host(mark, 70, 120, thread=2),
            host("c10d::allreduce_", 80, 110, number=6, thread=2),
            host("aten::add", 30, 900, number=8, thread=3),  # gives the device nothing to do
            kernel("nvjet", 100, 300, linked=5),
            kernel("ncclDevKernel_AllReduce", 300, 400, linked=6, stream=21),
        ]
    )
    assert terms_ns(made) == {"host": 100 + 600, "matmul": 200, term: 100}
    assert {s.details["pass"] for s in made.spans if s.term == "matmul"} == {"pass B 0 0"}


def test_a_drivers_call_is_not_taken_for_the_operation_with_its_number() -> None:
    """The driver numbers its calls apart from torch's operations."""
    driver = Event(label="cudaLaunchKernel", start=52, end=58, number=1, linked=2)
    made = timeline(
        [
            host(STEP, 0, 300),
            host("aten::mm", 0, 10, number=1),
            host("aten::add", 50, 60, number=2),
            driver,
            kernel("nvjet", 100, 200, linked=1),
            kernel("add", 200, 250, linked=2),
        ]
    )
    assert terms_ns(made) == {"host": 150, "matmul": 100, "elementwise": 50}


def test_labels_on_the_devices_side_are_no_work() -> None:
    label = Event(
        label="FSDP::root_pre_forward", start=50, end=280, linked=1, cuda=True, annotation=True
    )
    made = timeline(
        [host(STEP, 0, 300), host("aten::mm", 0, 10, number=1), label, kernel("nvjet", 100, 200, 1)]
    )
    assert terms_ns(made) == {"host": 200, "matmul": 100}


def test_work_from_before_the_step_is_left_out() -> None:
    made = timeline(
        [
            host("aten::mm", 0, 10, number=1),
            host(STEP, 100, 300),
            host("aten::mm", 110, 120, number=2),
            kernel("nvjet", 50, 90, linked=1),
            kernel("nvjet", 150, 250, linked=2),
        ]
    )
    assert terms_ns(made) == {"host": 100, "matmul": 100}


def test_a_message_counts_from_when_it_was_sent() -> None:
    """A receiver that posts early waits in its kernel; computation there hides the wait."""
    sender = [
        host(STEP, 0, 1000),
        host("aten::mm", 0, 10, number=1),
        host("send F 0 0 to 1", 20, 40),
        host("c10d::send", 25, 35, number=2),
        kernel("nvjet", 100, 500, linked=1),
        kernel("ncclDevKernel_SendRecv", 500, 600, linked=2, stream=30),
    ]
    receiver = [
        host(STEP, 0, 1000),
        host("post receive F 0 0", 0, 20),
        host("c10d::recv_", 5, 15, number=1),
        host("aten::mm", 30, 40, number=2),
        kernel("ncclDevKernel_SendRecv", 20, 600, linked=1, stream=30),
        kernel("nvjet", 600, 990, linked=2),
    ]
    made = timeline(sender, receiver)
    assert terms_ns(made, 1) == {"host": 20 + 10, "bubble": 480, "exposed_pp": 100, "matmul": 390}
    assert terms_ns(made, 0) == {"host": 100 + 400, "matmul": 400, "exposed_pp": 100}
    assert critical_rank(made) == 0


def test_a_hidden_wait_is_no_bubble() -> None:
    early = [
        host(STEP, 0, 1000),
        host("post receive B 0 0", 0, 20),
        host("c10d::recv_", 5, 15, number=1),
        host("aten::mm", 30, 40, number=2),
        kernel("ncclDevKernel_SendRecv", 20, 600, linked=1, stream=30),
        kernel("nvjet", 20, 990, linked=2),
    ]
    idle = [host(STEP, 0, 900), host("aten::mm", 0, 5, number=1), kernel("nvjet", 0, 900, linked=1)]
    made = timeline(idle, early)
    assert "bubble" not in terms_ns(made, 1)
    assert critical_rank(made) == 1


def test_the_norm_waits_for_the_last_rank() -> None:
    def rank(arrives: int) -> list[Event]:
        return [
            host(STEP, 0, 1000),
            host(UPDATE, 0, 100),
            host(COMMUNICATE_NORM, 10, 50),
            host("c10d::allreduce_", 20, 40, number=1),
            host("aten::_fused_adamw_", 60, 90, number=2),
            kernel("ncclDevKernel_AllReduce", arrives, 800, linked=1, stream=20),
            kernel("multi_tensor_apply", 800, 1000, linked=2),
        ]

    made = timeline(rank(200), rank(700))
    assert terms_ns(made, 0) == {"host": 200, "bubble": 500, "optimizer": 100 + 200}
    assert terms_ns(made, 1) == {"host": 700, "optimizer": 100 + 200}


def test_a_collective_is_cut_where_kernels_cease_to_hide_it() -> None:
    """Shown and hidden parts have categories of their own; the terms are as before."""
    made = timeline(
        [
            host(STEP, 0, 400),
            host("aten::mm", 0, 10, number=1),
            kernel("gemm", 100, 300, linked=1, stream=7),
            host("c10d::allreduce_", 10, 20, number=2),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, 380, linked=2, stream=20),
        ]
    )
    parts = [(s.term, round(s.start_s / NS), round(s.end_s / NS)) for s in made.spans
             if s.stream.kind == "communication"]  # fmt: skip
    assert parts == [("overlapped_dp", 200, 300), ("exposed_dp", 300, 380)]
    assert made.overlapping() == []
    assert terms_ns(made)["exposed_dp"] == 80
    assert "overlapped_dp" not in terms_ns(made)
