"""A record with everything in it."""

from batchadvisor import records

SPREAD = records.Spread(median=0.2, low=0.19, high=0.22, num_samples=9, confidence=0.96)
PLACE = records.SourceLine(file="train.py", line=7)


def full_record():
    """A record with every kind of struct in it and no field left at its default where it can."""
    loader = records.LoaderInfo(
        ordinal=0,
        place=PLACE,
        batch_size=16,
        num_samples=1000,
        drop_last=True,
        num_workers=2,
        sampler="RandomSampler",
        iterable=False,
        steered="exact",
        trains=True,
        source=records.BatchSizeSource(
            place=PLACE,
            before="batch_size=16",
            template="batch_size={}",
            option="--batch-size",
        ),
    )
    discovery = records.Discovery(
        loaders=(loader,),
        optimizers=(
            records.OptimizerInfo(
                ordinal=0,
                place=None,
                name="AdamW",
                learning_rate=1e-3,
                num_parameters=12,
                trains=True,
            ),
        ),
        primary_loader=0,
        native_batch_size=16,
        micro_batches=4,
        parameter_device="cuda:0",
        num_parameters=12,
        norm_layers=records.NormLayers(batch_norm=3),
        setup_s=4.5,
        native_step_s=0.1,
        unavailable={"norm_layers": "not counted"},
    )
    trial = records.Trial(
        ordinal=0,
        worker=0,
        batch_size=16,
        kind="timed",
        purpose="confirm",
        outcome="ok",
        arrived_batch_size=16,
        size_proof="shape",
        micro_batches=4,
        num_warmup_steps=3,
        step_s=SPREAD,
        samples_per_s=SPREAD,
        input_wait_s=SPREAD,
        memory=records.Memory(peak_bytes=10**9, peak_source="allocator", num_alloc_retries=1),
        profile=records.Profile(
            trace="traces/a.json",
            num_steps=3,
            busy_pct=90.0,
            operators=(records.OperatorTime(name="aten::mm", num_calls=3, self_s=0.1),),
            kernels=(
                records.KernelTime(name="gemm", num_calls=3, total_s=0.1, occupancy_pct=40.0),
            ),
        ),
        counters=records.Counters(num_samples=5, power_w=200.0, throttle_reasons=("power cap",)),
        tail=records.TailCheck(num_samples=8, outcome="ok", num_non_finite=2),
        elapsed_s=3.0,
        doubts=("high load: 9",),
        unavailable={"step_s": "an example"},
    )
    return records.RunRecord(
        state="finished",
        started_at="2026-11-20T00:00:00+00:00",
        command=("batchadvisor", "run", "train.py"),
        script=records.ScriptInfo(path="train.py", arguments=("--wörter", "ß")),
        goal=records.Goal(kind="memory", sizes=(8, 16), max_batch=64, start=8),
        versions=records.Versions(batchadvisor="0.1.0", python="3.11", torch="2.9", cuda="12.8"),
        device=records.DeviceInfo(
            kind="cuda",
            name="H200",
            index=0,
            uuid="GPU-1",
            total_bytes=10**11,
            capacity_bytes=10**11,
            capacity_source="free memory",
        ),
        discovery=discovery,
        trials=(trial,),
        faults=(records.Fault(outcome="hung", detail="silence", worker=1, log="script.log"),),
        files=(records.FileTouched(path="out.txt", action="write"),),
        doubts=("busy",),
        stop_reason="all is measured",
        num_workers_started=2,
        elapsed_s=10.0,
        search_s=5.0,
    )
