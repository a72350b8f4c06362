"""nbgrader's settings for an instructor: `nbgrader generate_assignment ch01_keys`, `nbgrader autograde ch01_keys`.

The assignments are the chapters that have a folder in solutions/, in nbgrader's default layout: one folder an
assignment, submissions in submitted/<student>/<chapter>/.
"""

from ledger.build.nbgrader_steps import STEPS

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "attention_ledger"
c.CourseDirectory.source_directory = "solutions"
# Not practice/: `generate_assignment --force` empties the folder of an assignment before it writes, and a learner's
# answers stand in practice/. release/ is ignored by git, and its notebooks equal the committed ones in practice/.
c.CourseDirectory.release_directory = "release"
# nbgrader's own steps in its own order, with stubs that name their exercise and a digest of what was released.
c.GenerateAssignment.preprocessors = STEPS
# Seconds a cell: a check runs every case of one exercise. A cell that takes longer fails, and the next ones still run.
c.Execute.timeout = 60
