from matrix.triage.cluster import Clusters

ONE = 'File "/w/a/buffer.py", line 88, in reduce\nRuntimeError: Gradient buffer bucket {n} was reduced twice in iteration {i}'
TWO = 'File "/w/sched.py", line 3, in plan\nSchedulerStall: no stage became ready within {n} s'


def test_runs_of_one_failure_are_one_cluster_and_another_failure_is_another():
    clusters = Clusters()
    first = [clusters.add(f"run{n}", ONE.format(n=n, i=n * 7)) for n in range(7)]
    other = clusters.add("run8", TWO.format(n=30))
    assert set(first) == {0}
    assert other == 1
    assert len(clusters.clusters[0].members) == 7


def test_a_line_more_or_less_does_not_make_another_failure():
    clusters = Clusters()
    assert clusters.add("a", ONE.format(n=1, i=2)) == clusters.add("b", "step done\n" + ONE.format(n=3, i=4))
