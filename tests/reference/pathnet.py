"""PathNet's evolution (Fernando et al. 2017) in plain loops over lists of module numbers; chance is an argument."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

Path = list[list[int]]  # module numbers of each layer


class Chance(NamedTuple):
    """What is drawn in a generation: who meets, the images that each of the two sees, and the mutation."""

    pair: tuple[int, int]
    batches: tuple[list[list[int]], list[list[int]]]
    draws: list[list[float]]
    moves: list[list[int]]


class Generation(NamedTuple):
    """After a tournament: the winner before its copy mutates, its fitness, and all paths."""

    winner: Path
    fitness: float
    population: list[Path]


def mutated_path(path: Path, draws: list[list[float]], moves: list[list[int]], modules: int) -> Path:
    """PathNet's mutation: a gene moves, in a ring of modules, if its draw from [0, 1) is below 1 / (L N)."""
    genes = sum(len(layer) for layer in path)
    return [
        [(gene + moves[i][j]) % modules if draws[i][j] < 1 / genes else gene for j, gene in enumerate(layer)]
        for i, layer in enumerate(path)
    ]


def tournaments(
    population: list[Path],
    chances: Iterable[Chance],
    fitness: Callable[[Path, list[list[int]]], float],
    modules: int,
    target: float,
) -> list[Generation]:
    """Two paths, each with batches of its own; a mutated copy of the fitter, or of the first, replaces the other.

    It ends with a winner that reaches the target.
    """
    done: list[Generation] = []
    paths = [[list(layer) for layer in path] for path in population]
    for chance in chances:
        first, second = chance.pair
        of_first = fitness(paths[first], chance.batches[0])
        of_second = fitness(paths[second], chance.batches[1])
        if of_second > of_first:
            winner, loser, best = second, first, of_second
        else:
            winner, loser, best = first, second, of_first
        paths[loser] = mutated_path(paths[winner], chance.draws, chance.moves, modules)
        done.append(Generation(paths[winner], best, list(paths)))
        if best >= target:
            break
    return done
