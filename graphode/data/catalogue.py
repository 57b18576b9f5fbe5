"""What is known of each data set: its files, their checksums, where they come from, what to cite.

A file is recognised by its bytes: whoever finds it, in a folder or on the net, compares the sha256
before anything reads it (`store.py`). An address names a commit, so that it keeps its bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

RAW = "https://raw.githubusercontent.com"
PLANETOID = f"{RAW}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
SEN = 'Sen et al. (2008), "Collective Classification in Network Data"'
YANG = (
    'Yang, Cohen, Salakhutdinov (2016), "Revisiting Semi-Supervised Learning with Graph '
    f'Embeddings"; the papers and citations: {SEN}'
)
SHCHUR = 'Shchur et al. (2018), "Pitfalls of Graph Neural Network Evaluation"'
PEMS = "California Department of Transportation, Performance Measurement System (PeMS)"


@dataclass(frozen=True)
class DataFile:
    """A file, known by its bytes.

    Args:
        name: Its name in the data set's folder.
        size: In bytes.
        sha256: In hexadecimal.
        urls: Public addresses of these very bytes, the first tried first; none if no public copy
            of them is known.
    """

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSource:
    """A data set: its files and their origin.

    Args:
        name: By which users ask for it, and the name of its folder.
        what: One line for a list.
        files: All that is needed to load it.
        licence: As stated by the source.
        citation: Whom to cite.
        note: How to come by a file that has no public address.
        embedded: Whether the files are part of this package.
    """

    name: str
    what: str
    files: tuple[DataFile, ...]
    licence: str
    citation: str
    note: str = ""
    embedded: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def file(self, name: str) -> DataFile:
        """The file of that name."""
        for file in self.files:
            if file.name == name:
                return file
        raise ValueError(
            f"{self.name} has no file {name!r}. It has: {', '.join(f.name for f in self.files)}."
        )


def find_source(name: str, among: Iterable[str] | None = None) -> DataSource:
    """The data set of that name, or an error that lists the names (those in `among`)."""
    known = sorted(SOURCES if among is None else among)
    if name not in known:
        raise ValueError(f"Unknown data set {name!r}. Choose one of: {', '.join(known)}.")
    return SOURCES[name]


def _planetoid(name: str, what: str, files: dict[str, tuple[int, str]]) -> DataSource:
    return DataSource(
        name,
        what,
        tuple(
            DataFile(f"ind.{name}.{part}", size, sha256, (f"{PLANETOID}/ind.{name}.{part}",))
            for part, (size, sha256) in files.items()
        ),
        licence="MIT (the repository); the citation data has no statement of its own",
        citation=YANG,
    )


_CORA = {
    "x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
    "y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
    "tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
    "ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
    "allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
    "ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
    "graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
    "test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
}
_CITESEER = {
    "x": (31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
    "y": (3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
    "tx": (260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
    "ty": (24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
    "allx": (595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
    "ally": (55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
    "graph": (61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
    "test.index": (5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
}
_PUBMED = {
    "x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
    "y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
    "tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
    "ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
    "allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
    "ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
    "graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
    "test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
}

SOURCES: dict[str, DataSource] = {
    source.name: source
    for source in (
        _planetoid("cora", "2 708 papers, public split", _CORA),
        _planetoid("citeseer", "3 327 papers, public split", _CITESEER),
        _planetoid("pubmed", "19 717 papers on diabetes, public split", _PUBMED),
        DataSource(
            "cora_linqs",
            "Cora in its original order, the split of the paper's authors",
            (
                DataFile(
                    "cora_linqs.npz",
                    87766,
                    "3067efd309ed7ff1a569e9e705a27d1e2fca7a19b0d69aaca120f27ee9618409",
                ),
            ),
            licence="none stated; obtained from a distribution under Apache-2.0",
            citation=SEN,
            embedded=True,
        ),
        DataSource(
            "texas",
            "183 web pages, heterophilous, 10 splits",
            (
                DataFile(
                    "texas.npz",
                    28586,
                    "b164b99e6c3d43e4ab07488ec59bd8c815f90cbc1bd4cf425ce587d2b534d844",
                    (
                        f"{RAW}/yandex-research/heterophilous-graphs/"
                        "a431395582e929d88271309716bea4fe24ce6318/data/texas.npz",
                    ),
                ),
            ),
            licence="MIT",
            citation='Pei et al. (2020), "Geom-GCN"; this form: Platonov et al. (2023), '
            '"A critical look at the evaluation of GNNs under heterophily"',
        ),
        DataSource(
            "amazon_photo",
            "7 650 products bought together, dense",
            (
                DataFile(
                    "amazon_photo.npz",
                    1803944,
                    "d0ddede69df29b295f19eb1e32bd6fbe5474722b7bac0bdb040e526b0d5ea2f0",
                ),
            ),
            licence="MIT (the repository)",
            citation=SHCHUR,
            note="It is datasets/amazon_photo.npz of github.com/EdisonLeeeee/GraphData, saved "
            "again without pickles; in this form it has no public address.",
        ),
        DataSource(
            "coauthor_physics",
            "34 493 authors who wrote together, large",
            (
                DataFile(
                    "coauthor_physics.npz",
                    2980110,
                    "96133e3f4afc5e4b882b1991a59eea8935c1b96af4809e3b3f00d22ba6a1210c",
                ),
            ),
            licence="MIT (the repository)",
            citation=SHCHUR,
            note="It is datasets/coauthor_phy.npz of github.com/EdisonLeeeee/GraphData, saved "
            "again without pickles; in this form it has no public address.",
        ),
        DataSource(
            "england_covid",
            "129 regions, 61 days, another mobility graph every day",
            (
                DataFile(
                    "england_covid.json",
                    1436945,
                    "497056cc4585b58951fd5cd17554fe0c535f68ea0c907a5b5727ae30e3913450",
                    (
                        f"{RAW}/benedekrozemberczki/pytorch_geometric_temporal/"
                        "adefe44265ad8faf239fd6cf3b59b95ca3ee60aa/dataset/england_covid.json",
                    ),
                ),
            ),
            licence="MIT (the repository)",
            citation='Panagopoulos et al. (2021), "Transfer Graph Neural Networks for Pandemic '
            'Forecasting"',
        ),
        DataSource(
            "pems08",
            "170 road detectors, speed every 5 minutes for 62 days",
            (
                DataFile(
                    "pems08_speed.npz",
                    3427905,
                    "8955c2c3c5ad24c1d360aeb46bb050358df23ab174647f79c80a229fea3a1e53",
                ),
                DataFile(
                    "distance.csv",
                    4032,
                    "859d68e7583ed4e6016588eaaca494d3ece286dae361614c5c1833017f87eaa7",
                    (
                        f"{RAW}/Davidham3/ASTGCN/"
                        "d5d40645fa45471f2b473fc49a29ec3f0a993c6d/data/PEMS08/distance.csv",
                    ),
                ),
            ),
            licence="none stated",
            citation=f'Guo et al. (2019), "ASTGCN"; Song et al. (2020), "STSGCN"; the data: {PEMS}',
            note="The speeds were reconstructed and have no public address in this form; the "
            "published PEMS08.npz (flow, occupancy, speed) can be read with --dataset file "
            "--speeds PEMS08.npz --channel 2 --distances distance.csv (in Python "
            "`read_speeds(path, channel=2)`).",
        ),
        DataSource(
            "pemsd7m",
            "228 road detectors, distances and stations; speeds apart",
            (
                DataFile(
                    "PeMSD7_W_228.csv",
                    1299600,
                    "c558c602b7937fb3ecb3835938fe8f61a34efa4c51e0ae3f61ed93ecc680060e",
                    (
                        f"{RAW}/rezahabibi96/gnn/"
                        "f527cdfba5912488e4c5ae111666c8e9cda9c8fa/data/PEMSD7/PeMSD7_W_228.csv",
                    ),
                ),
                DataFile(
                    "PeMSD7_M_Station_Info.csv",
                    9118,
                    "5a9744215880f2ec1a5b3efdbd6ee662eb1533b9b3d68924d85f5e45c28a02fe",
                    (
                        f"{RAW}/VeritasYin/STGCN_IJCAI-18/"
                        "747007ab01d56762c1a6bad89b255700cedf204d/"
                        "dataset/PeMSD7_M_Station_Info.csv",
                    ),
                ),
            ),
            licence="BSD-2-Clause (the stations); none stated for the distances",
            citation='Yu, Yin, Zhu (2018), "Spatio-Temporal Graph Convolutional Networks"; '
            f"the data: {PEMS}",
            note="The speeds, V_228.csv or PeMS-M.zip, have no public address that is known to "
            "keep its bytes; put them in the folder.",
        ),
    )
}
