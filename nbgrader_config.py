"""nbgrader's settings for an instructor: `nbgrader generate_assignment ch01_keys`, `nbgrader autograde ch01_keys`.

The assignments are the chapters that have a folder in solutions/, in nbgrader's default layout: one folder an
assignment, submissions in submitted/<student>/<chapter>/.
"""

from ledger.build.nbgrader_steps import STEPS
from ledger.judge.autograde import AUTOGRADE, SANITIZE, Reader, Scores, released_names

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "attention_ledger"
c.CourseDirectory.source_directory = "solutions"
# Not practice/: `generate_assignment --force` empties the folder of an assignment before it writes, and a learner's
# answers stand in practice/. release/ is ignored by git, and its notebooks equal the committed ones in practice/.
c.CourseDirectory.release_directory = "release"
# nbgrader's own steps in its own order, with stubs that name their exercise and a digest of what was released.
c.GenerateAssignment.preprocessors = STEPS
# The judge in the place of a kernel: answers run in its jail, and a graded cell gets points and a reason.
c.Autograde.sanitize_preprocessors = SANITIZE
c.Autograde.autograde_preprocessors = AUTOGRADE
# A notebook under the name of a copy, or with a byte order mark, is graded as well.
c.Autograde.pre_convert_hook = released_names
c.Autograde.exporter_class = Reader
# A submission that could not be graded has an empty score, where nbgrader writes 0.
c.ExportApp.plugin_class = Scores
