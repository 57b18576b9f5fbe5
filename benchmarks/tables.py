"""The tables of README.md, benchmarks/README.md and docs/, from the committed result files.

python benchmarks/tables.py            print them
python benchmarks/tables.py --write    put them between their markers
"""

import argparse
import re
from typing import Any

from committed import ROOT, Row, hardware, markdown, result, results, taken_on
from hybrid_table import hybrid_rows
from node_table import depths, redrawn, stopping, table_1, tuned
from traffic_table import claim_lines, table_2_rows

NO_FIGURES = "*No figures yet.*"


def against(found: dict[str, Any], name: str) -> Row:
    """Times beside the rival's."""
    row = found["time"][name]
    ours, theirs = f"{row['milliseconds']:.2f} ms", f"{row['rival_milliseconds']:.2f} ms"
    return name, ours, theirs, f"{row['ratio']:.2f}"


def summary() -> str:
    """The table of README.md."""
    cpu, gpu = result("flows-cpu"), result("flows-cuda")
    rows = []
    for label, found, name in (
        ("`rk4_38`, one step, CPU", cpu, "rk4_38"),
        ("`dopri5`, tolerances 1e-3 and 1e-4, CPU", cpu, "dopri5"),
        ("`rk4_38`, one step, GPU, `capture=True`", gpu, "rk4_38_captured"),
        ("`dopri5`, GPU", gpu, "dopri5"),
    ):
        _, ours, theirs, ratio = against(found, name)
        rows.append((label, ours, theirs, ratio))
    table = markdown(("", "graphode", "torchdiffeq", "ratio"), rows)
    return f"{table}\n\n*CPU: {hardware(cpu)}. GPU: {hardware(gpu)}.*"


def flows() -> str:
    """The table of benchmarks/README.md."""
    cpu, gpu = result("flows-cpu"), result("flows-cuda")
    memory, on_gpu, counts = cpu["memory"], gpu["memory"], cpu["batch"]
    cost = cpu["evaluations"]
    rows: list[Row] = [
        ("evaluations of dopri5 at equal error, geometric mean", "≤ 1.05 ×",
         f"{cost['geometric_mean_ratio']:.2f} ×", "18 cases"),
        ("… the worst case", "≤ 1.4 ×", f"{cost['largest_ratio']:.2f} ×", ""),
        ("rk4_38, CPU, time", "≤ 0.9 ×", f"{cpu['time']['rk4_38']['ratio']:.2f} ×", ""),
        ("dopri5, CPU, time", "≤ 0.8 ×", f"{cpu['time']['dopri5']['ratio']:.2f} ×", ""),
        ("rk4_38, GPU, captured, time", "≤ 0.35 ×",
         f"{gpu['time']['rk4_38_captured']['ratio']:.2f} ×", ""),
        ("rk4_38, GPU, eager, time", "", f"{gpu['time']['rk4_38']['ratio']:.2f} ×", ""),
        ("checkpoint over backprop, peak memory, CPU", "≤ 0.1 ×",
         f"{memory['checkpoint_over_backprop']:.3f} ×",
         f"{memory['checkpoint_1024_mib']:.0f} of {memory['backprop_1024_mib']:.0f} MiB"),
        ("… GPU", "≤ 0.1 ×", f"{on_gpu['checkpoint_over_backprop']:.3f} ×",
         f"{on_gpu['checkpoint_1024_mib']:.0f} of {on_gpu['backprop_1024_mib']:.0f} MiB"),
        ("… gradients differ by (float64, relative)", "≤ 1e-10",
         f"{memory['checkpoint_gradient_gap']:.0e}", ""),
        ("adjoint, peak memory of 4096 over 64 steps, CPU", "≤ 1.1 ×",
         f"{memory['adjoint_4096_over_64']:.2f} ×", f"{memory['adjoint_4096_mib']:.0f} MiB"),
        ("… GPU", "≤ 1.1 ×", f"{on_gpu['adjoint_4096_over_64']:.2f} ×",
         f"{on_gpu['adjoint_4096_mib']:.0f} MiB"),
        ("64 samples, stiffness × 100: counts that differ from a lone solve", "0",
         str(counts["samples_whose_counts_differ"]),
         f"{counts['fewest_steps']} to {counts['most_steps']} steps"),
    ]  # fmt: skip
    table = markdown(("against torchdiffeq", "goal", "measured", ""), rows)
    return f"{table}\n\n*CPU: {hardware(cpu)}. GPU: {hardware(gpu)}.*"


def propagate() -> str:
    """The sparse product against PyG's message passing."""
    cpu, gpu = result("propagate-cpu"), result("propagate-cuda")
    labels = {
        "cora_size": "2708 nodes, 64 channels",
        "cora_size_with_linear": "… with the linear layer on both sides",
        "large": "100 000 nodes, 2 000 000 edges",
        "large_with_linear": "… with the linear layer on both sides",
    }
    rows = []
    for name, label in labels.items():
        goals = cpu["goals"].get(f"{name}_speedup_over_pyg", {})
        goal = ", ".join(f"{device} ≥ {value} ×" for device, value in goals.items())
        speeds = [f"{found['time'][f'{name}_speedup_over_pyg']:.1f} ×" for found in (cpu, gpu)]
        rows.append((label, goal, *speeds))
    shares = [f"{found['memory']['large_share_of_pyg']:.3f} ×" for found in (cpu, gpu)]
    rows.append(("peak memory of the large one", "≤ 0.25 ×", *shares))
    table = markdown(("PyG's time over ours, forward and backward", "goal", "CPU", "GPU"), rows)
    return f"{table}\n\n*CPU: {hardware(cpu)}. GPU: {hardware(gpu)}.*"


def attention() -> str:
    """Attention fields against PyG's layers."""
    found = results("attention")
    labels = {
        "gatv2": "GATv2, 1 head",
        "gatv2_8_heads": "GATv2, 8 heads",
        "gat_8_heads": "GAT, 8 heads",
    }
    rows = []
    for name, label in labels.items():
        row = [label]
        for each in found.values():
            time = each["time"]
            ours = time[f"{name}_ms"]["graphode"]
            row.append(f"{ours:.0f} ms" if ours >= 10 else f"{ours:.2f} ms")
            row.append(f"{time[f'{name}_speedup_over_pyg']:.1f} ×")
            row.append(f"{each['memory'][f'{name}_share_of_pyg']:.2f} ×")
        rows.append(tuple(row))
    header = ["100 000 nodes, 2 000 000 edges"]
    for device in found:
        header += [f"{device}, ours", "PyG's time over ours", "share of its memory"]
    return f"{markdown(tuple(header), rows)}\n\n{taken_on(found)}"


def growth() -> str:
    """Time per edge as graphs grow."""
    found = results("growth")
    if not found:
        return NO_FIGURES
    rows = []
    for device, each in found.items():
        for row in each["sizes"]["rows"]:
            cells = [f"{device}, {row['edges']:,} edges".replace(",", " ").replace("  ", ", ")]
            for what in ("forward", "both"):
                cells.append(f"{row[f'{what}_ns_per_edge']:.3g} ns")
                cells.append(f"{row[f'{what}_over_floor']:.2f} ×")
            rows.append(tuple(cells))
    over = "over gathering"
    header = ("64 channels", "forward, an edge", over, "with backward", over)
    spread = [
        f"{device}: slowest over fastest edge, forward and backward, "
        f"{each['sizes']['both_spread']:.2f} ×."
        for device, each in found.items()
    ]
    return "\n\n".join([markdown(header, rows), *spread, taken_on(found)])


def masks() -> str:
    """Dropout against torch's."""
    found = results("masks")
    if not found:
        return NO_FIGURES
    labels = {
        "one": "2708 × 64",
        "hundred_own_masks": "100 × 2708 × 64, each its own masks",
        "hundred_one_mask": "… all the same mask",
        "one_captured": "2708 × 64, recorded and replayed, as training is",
        "hundred_own_masks_captured": "100 × 2708 × 64, recorded",
    }

    def ratio(each: dict[str, Any], name: str) -> str:
        value = each["alone"].get(f"{name}_torch_over_ours")
        return "" if value is None else f"{value:.2f} ×"

    goals = {name: "≥ 1 ×" for each in found.values() for name in each["goals"]}
    rows = [
        (
            label,
            goals.get(f"{name}_torch_over_ours", ""),
            *(ratio(each, name) for each in found.values()),
        )
        for name, label in labels.items()
    ]
    solves = (f"{each['solve']['torch_over_ours']:.2f} ×" for each in found.values())
    rows.append(("a solve of rk4_38, one step", "", *solves))
    header = ("torch's time over ours, forward and backward", "goal", *found)
    return f"{markdown(header, rows)}\n\n{taken_on(found)}"


def table_3(metric: str, models: tuple[str, ...] = ()) -> str:
    """Means of the multi-agent experiment, the paper's below ours in italics."""
    found = [row for row in result("table-3") if row["metric"] == metric]
    columns = list(dict.fromkeys(row["column"] for row in found))
    rows: list[Row] = []
    for model in models or dict.fromkeys(row["model"] for row in found):
        cells = {row["column"]: row for row in found if row["model"] == model}
        if cells:
            rows.append((model, *(number(cells[column]["mean"]) for column in columns)))
        if any(cell["paper"] is not None for cell in cells.values()):
            paper = (f"*{number(cells[column]['paper'])}*" for column in columns)
            rows.append(("*… in the paper*", *paper))
    return markdown(("", *columns), rows)


def number(value: float) -> str:
    """Percentages to one place, small numbers to two digits."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def transfers() -> str:
    """Errors of the learned law on systems it was not trained on, harmonic motion's beside."""
    found = [r for r in result("table-3") if r["metric"].startswith("RMSE")]
    columns = list(dict.fromkeys(row["column"] for row in found if ", without" in row["metric"]))
    rows: list[Row] = []
    for metric in dict.fromkeys(row["metric"] for row in found):
        cells = {(r["model"], r["column"]): r["mean"] for r in found if r["metric"] == metric}
        name = "10 particles, as trained" if metric == "RMSE" else metric.split(", ", 1)[1]
        shown = (
            f"{number(cells['Pair force (tuned)', c])} / {number(cells['Harmonic motion', c])}"
            for c in columns
        )
        rows.append((name.removesuffix(", without retraining"), *shown))
    return markdown(("RMSE, pair force / harmonic motion", *columns), rows)


def particles() -> str:
    """Training steps and forecasts of ten seeds, beside the rival's, seed by seed."""
    found = result("particles-cpu")
    models = {"gde": "GDE", "neural_ode": "Neural ODE"}
    parts = {"training": "a training step", "rollout": "a forecast of 50 steps"}
    rows: list[Row] = []
    for part, what in parts.items():
        for model, name in models.items():
            each = found[part][model]
            ratios = (f"{ratio:.1f} ×" for ratio in each["ratio_per_seed"].values())
            rows.append(
                (f"{name}, {what}", f"{each['rival_milliseconds_one_seed']:.1f} ms", *ratios)
            )
    header = ("rival's time over ours, per seed", "rival", "eager", "recorded", "compiled")
    return f"{markdown(header, rows)}\n\n*{hardware(found)}.*"


def claims() -> str:
    """What must be seen in the multi-agent experiment, and whether it is."""
    return "\n".join(
        f"- **{'Holds' if claim['holds'] else 'Fails'}**: {claim['claim']}."
        + (f" Not in {'; '.join(claim['where'])}." if claim["where"] else "")
        for claim in result("table-3-claims")
    )


def table_2() -> str:
    """Traffic forecasting: what has been run."""
    found = result("table-2")
    table = markdown(*table_2_rows(found["rows"], "RMSE, mph"))
    return f"{table}\n\n*Mean ± standard deviation over 5 members and 20 masks: {hardware(found)}.*"


def stgcn() -> str:
    """Traffic forecasting by STGCN's protocol: what has been run."""
    found = result("table-2")
    ahead = [f"12 in, {minutes} min out" for minutes in (15, 30, 45)]
    own = [row for row in found["rows"] if row["column"] in ahead]
    cells: dict[tuple[str, str, str], str] = {
        (row["model"], row["metric"], row["column"]): f"{row['mean']:.2f}" for row in own
    }
    metrics = ("MAE, mph", "MAPE, %", "RMSE, mph")
    rows = [
        (model, *(cells[model, metric, column] for metric in metrics for column in ahead))
        for model in dict.fromkeys(model for model, *_ in cells)
    ]
    header = [
        f"{metric.split(',')[0]}, {column.split()[2]} min" for metric in metrics for column in ahead
    ]
    table = markdown(("12 samples in", *header), rows)
    return f"{table}\n\n*Mean over 5 members: {hardware({**found, 'rows': own})}.*"


def ensemble() -> str:
    """An epoch of one run and of a hundred, beside the rival's."""
    found = results("ensemble")
    rows: list[Row] = []
    for device, each in found.items():
        for solver in ("rk4", "dopri5"):
            times, peaks = each[solver]["milliseconds"], each[solver]["peak_mib"]
            for name in times:
                ratio = ""
                if name.startswith("graphode"):
                    ratios = each[solver]["times_faster_per_member"].items()
                    ratio = ", ".join(
                        f"{value:.{1 if value < 100 else 0}f} × {pair.split('/')[0].split('_')[1]}"
                        for pair, value in ratios
                        if pair.endswith(f"/{name}")
                    )
                label = name.replace("_", ", masks ") if "torchdiffeq" in name else _members(name)
                shown = f"{times[name]:.2f} ms", f"{peaks[name]:.0f} MiB"
                rows.append((f"{solver}, {device}: {label}", *shown, ratio))
    header = (
        "Cora, an epoch of training and evaluation",
        "time",
        "memory",
        "faster per member than",
    )
    return f"{markdown(header, rows)}\n\n{taken_on(found)}"


def _members(name: str) -> str:
    count = int(name.removeprefix("graphode_"))
    return "graphode, one run" if count == 1 else f"graphode, {count} members"


TABLES = {
    "docs/node_classification.md": {
        "table_1": table_1,
        "redrawn": redrawn,
        "depths": depths,
        "tuned": tuned,
        "stopping": stopping,
    },
    "docs/ensembles.md": {"ensemble": ensemble},
    "docs/traffic.md": {
        "table_2": table_2,
        "stgcn": stgcn,
        "claims": lambda: claim_lines(result("table-2")["claims"]),
    },
    "docs/multi_agent.md": {
        "mape": lambda: table_3("MAPE, %"),
        "rmse": lambda: table_3("RMSE"),
        "median": lambda: table_3("median APE, %"),
        "transfer": transfers,
        "particles": particles,
        "claims": claims,
    },
    "README.md": {"summary": summary},
    "benchmarks/README.md": {
        "flows": flows,
        "propagate": propagate,
        "attention": attention,
        "growth": growth,
        "masks": masks,
        "hybrid": lambda: f"{markdown(*hybrid_rows(f := results('hybrid')))}\n\n{taken_on(f)}",
    },
}


def filled(text: str, tables: dict[str, Any]) -> str:
    """`text` with every table put between its markers."""
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, places = re.subn(
            pattern, lambda m, t=table: f"{m[1]}{t()}\n{m[2]}", text, flags=re.DOTALL
        )
        if places != 1:
            raise ValueError(f"The markers of table {name!r} must stand once, not {places} times.")
    return text


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for page, tables in TABLES.items():
        path = ROOT / page
        if write:
            path.write_text(filled(path.read_text(), tables))
        else:
            print(*(table() for table in tables.values()), sep="\n\n")


if __name__ == "__main__":
    main()
