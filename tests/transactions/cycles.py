"""Cycles in a graph of transactions: one for each strongly connected component; pure.

Source: Tarjan (1972); Kingsbury and Alvaro, Elle (VLDB 2020).
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """One transaction came before another, and why."""

    source: str
    target: str
    why: str


class Graph:
    """Edges by where they begin; of several between two transactions the first is kept."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self.edges: dict[str, dict[str, str]] = defaultdict(dict)
        for edge in edges:
            self.edges[edge.source].setdefault(edge.target, edge.why)

    def __contains__(self, pair: tuple[str, str]) -> bool:
        source, target = pair
        return target in self.edges.get(source, {})


def cycles(graph: Graph, *, through: Graph | None = None) -> Iterator[str]:
    """A shortest cycle of each component, as text; only those with an edge of ``through``."""
    for component in components(graph):
        members = set(component)
        for start in component:
            for target in list(graph.edges[start]):
                if target not in members or (through and (start, target) not in through):
                    continue
                yield _told(graph, [start, *_path(graph, target, start, members)])
                break
            else:
                continue
            break


def _told(graph: Graph, names: Sequence[str]) -> str:
    parts = [f"{one} {graph.edges[one][other]}" for one, other in itertools.pairwise(names)]
    return ", ".join([*parts, names[-1]])


def _path(graph: Graph, start: str, goal: str, members: set[str]) -> list[str]:
    """The shortest way inside a component, both ends included."""
    came_from: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == goal:
            break
        for following in graph.edges.get(node, {}):
            if following in members and following not in came_from and following != start:
                came_from[following] = node
                waiting.append(following)
    path = [goal]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def components(graph: Graph) -> list[list[str]]:
    """The strongly connected components with more than one transaction.

    Tarjan's algorithm with a stack of its own: a chain of transactions is longer than Python's.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in list(graph.edges):
        if root in order:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(graph.edges.get(root, {})))]
        order[root] = lowest[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            child = next(following, None)
            if child is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    found.append(_popped(stack, on_stack, node))
            elif child not in order:
                order[child] = lowest[child] = len(order)
                stack.append(child)
                on_stack.add(child)
                work.append((child, iter(graph.edges.get(child, {}))))
            elif child in on_stack:
                lowest[node] = min(lowest[node], order[child])
    return [component for component in found if len(component) > 1]


def _popped(stack: list[str], on_stack: set[str], last: str) -> list[str]:
    component: list[str] = []
    while not component or component[-1] != last:
        component.append(stack.pop())
        on_stack.discard(component[-1])
    return component
