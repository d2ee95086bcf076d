/* Copyright 2026 The JAX Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
==============================================================================*/

#ifndef JAXLIB_TESTING_LOG_TESTING_H_
#define JAXLIB_TESTING_LOG_TESTING_H_

namespace jax {

// Python for a `PythonScope`: makes `records`. Its `messages` are the later
// messages on `jaxlib.pjit`, which go to no other handler. For tests only.
inline constexpr char kRecordLog[] = R"(
import logging
class Records(logging.Handler):
  def __init__(self):
    super().__init__()
    self.messages = []
  def emit(self, record):
    self.messages.append(record.getMessage())
records = Records()
logging.getLogger("jaxlib.pjit").handlers = [records]
logging.getLogger("jaxlib.pjit").propagate = False
)";

}  // namespace jax

#endif  // JAXLIB_TESTING_LOG_TESTING_H_
