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

#include "jaxlib/wheel/cache_miss.h"

#include <Python.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>  // NOLINT
#include <vector>

#include "jaxlib/testing/log_testing.h"
#include "jaxlib/testing/python_testing.h"
#include "jaxlib/wheel/step_aside.h"
#include "nanobind/nanobind.h"

namespace jax {
namespace {

namespace nb = nanobind;

nb::object Make(nb::object cache_miss, nb::object static_argnums,
                nb::object static_argnames, nb::object registry,
                nb::object global_cache_key) {
  return MakeCacheMiss({nb::str("f"), nb::none(), cache_miss, static_argnums,
                        static_argnames, global_cache_key, registry});
}

class CacheMissTest : public testing::Test {
 protected:
  CacheMissTest() {
    for (std::atomic<bool>& warned : GetStepAsideState().warned) warned = false;
    GetDispatchState().enabled = true;
    scope_.Set("make", nb::cpp_function(&Make));
    scope_.Run(kRecordLog);
    scope_.Run(R"(
import gc, pickle, sys, weakref
mesh = Mesh()
physical, logical = NamedSharding(mesh, P(None)), NamedSharding(mesh, P())
def returns_key(*args, **kwargs):
  return dispatch(key(physical), [logical])
def wrap(cache_miss, static_argnums=(), static_argnames=(),
         registry=dispatch_registry, global_cache_key=NOTHING_ASKED):
  return make(cache_miss, static_argnums, static_argnames, registry,
              global_cache_key)
)");
  }

  struct Counts {
    uint64_t slow_dispatches, tables, physical_entries, respelled_results,
        left_to_stock;
    bool operator==(const Counts& other) const {
      return slow_dispatches == other.slow_dispatches &&
             tables == other.tables &&
             physical_entries == other.physical_entries &&
             respelled_results == other.respelled_results &&
             left_to_stock == other.left_to_stock;
    }
  };

  static Counts Now() {
    const DispatchCounters& now = GetDispatchState().counters;
    return {now.slow_dispatches, now.tables, now.physical_entries,
            now.respelled_results, now.left_to_stock};
  }

  // The growth of the counters while `code` ran.
  Counts CountsOf(const char* code) {
    Counts before = Now();
    scope_.Run(code);
    Counts after = Now();
    return {after.slow_dispatches - before.slow_dispatches,
            after.tables - before.tables,
            after.physical_entries - before.physical_entries,
            after.respelled_results - before.respelled_results,
            after.left_to_stock - before.left_to_stock};
  }

  PythonScope scope_;
};

TEST_F(CacheMissTest, AppliesTheRule) {
  EXPECT_EQ(CountsOf("result = wrap(returns_key)()"), (Counts{1, 1, 1, 0, 0}));
  EXPECT_TRUE(scope_.Is("result[1].out_shardings[0] is physical"));
}

TEST_F(CacheMissTest, CountsRespelledResults) {
  EXPECT_EQ(CountsOf("result = wrap(returns_key)(key(logical))"),
            (Counts{1, 1, 1, 1, 0}));
  EXPECT_TRUE(scope_.Is("result[1].out_shardings[0] is logical"));
}

TEST_F(CacheMissTest, PassesPositionalAndKeywordArguments) {
  scope_.Run(R"(
def echo(*args, **kwargs):
  return (args, kwargs), None
result = wrap(echo)(1, [2], c=3, d=None)
)");
  EXPECT_EQ(scope_.Repr("result"), "(((1, [2]), {'c': 3, 'd': None}), None)");
}

TEST_F(CacheMissTest, KeywordArgumentsCanBeFedBack) {
  scope_.Run("result = wrap(returns_key)(k=[key(logical)])");
  EXPECT_TRUE(scope_.Is("result[1].out_shardings[0] is logical"));
}

TEST_F(CacheMissTest, StaticArgumentsAreNotTouched) {
  EXPECT_EQ(CountsOf(R"(
class Untouchable:
  pass
def refuse(_):
  raise AssertionError("a static argument was flattened")
default_registry.register_node(Untouchable, refuse, None)
f = wrap(returns_key, (0, -1), ("config",))
result = f(Untouchable(), key(logical), Untouchable(), config=Untouchable())
)"),
            (Counts{1, 1, 1, 1, 0}));
}

TEST_F(CacheMissTest, SwitchedOffReturnsWhatCacheMissReturned) {
  GetDispatchState().enabled = false;
  EXPECT_EQ(CountsOf(R"(
returned = returns_key()
result = wrap(lambda: returned)()
)"),
            (Counts{1, 0, 0, 0, 0}));
  EXPECT_TRUE(scope_.Is("result is returned"));
}

TEST_F(CacheMissTest, ErrorOfCacheMissIsUnchanged) {
  EXPECT_EQ(CountsOf(R"(
error = ValueError("of the user")
def fail():
  raise error
try:
  wrap(fail)()
except ValueError as e:
  caught, frames = e, e.__traceback__
frames = frames.tb_next
)"),
            (Counts{1, 0, 0, 0, 0}));
  EXPECT_TRUE(scope_.Is("caught is error"));
  // The next frame after the caller's is the dispatch function's.
  EXPECT_EQ(scope_.Repr("frames.tb_frame.f_code.co_name"), "'fail'");
  EXPECT_EQ(scope_.Repr("records.messages"), "[]");
}

TEST_F(CacheMissTest, FailureOfTheRuleLeavesTheDispatchToStockAndSaysSoOnce) {
  EXPECT_EQ(CountsOf(R"(
returned = dispatch(key(physical), [])
f = wrap(lambda: returned)
results = [f(), f()]
)"),
            (Counts{2, 0, 0, 0, 2}));
  EXPECT_TRUE(scope_.Is("all(r is returned for r in results)"));
  EXPECT_EQ(scope_.Repr("records.messages"),
            "['Could not attach physical shardings to the outputs of a "
            "dispatch (ValueError: fastpath_data.out_shardings has another "
            "length than the outputs); doing as stock jaxlib does. This is "
            "said once; set JAXLIB_PJIT_STRICT=1 to raise the error "
            "instead.']");
}

TEST_F(CacheMissTest, ErrorThatCanNotBeShownIsLoggedByItsType) {
  scope_.Run(R"(
class Unprintable(Exception):
  def __str__(self):
    raise RuntimeError
registry = PyTreeRegistry()
def refuse(_):
  raise Unprintable
registry.register_node(Key, refuse, None)
returned = returns_key()
result = wrap(lambda: returned, registry=registry)()
)");
  EXPECT_TRUE(scope_.Is("result is returned"));
  EXPECT_TRUE(scope_.Is("'(Unprintable: )' in records.messages[0]"));
}

TEST_F(CacheMissTest, LongErrorIsCutToOneShortLine) {
  scope_.Run(R"(
registry = PyTreeRegistry()
def refuse(_):
  raise ValueError("x" * 10_000_000 + "\nsecond line")
registry.register_node(Key, refuse, None)
result = wrap(returns_key, registry=registry)()
)");
  EXPECT_TRUE(scope_.Is("len(records.messages[0]) < 500"));
}

TEST_F(CacheMissTest, LoggerThatRaisesDoesNoHarm) {
  scope_.Run(R"(
def refuse(record):
  raise RuntimeError
records.emit = refuse
returned = dispatch(key(physical), [])
result = wrap(lambda: returned)()
)");
  EXPECT_TRUE(scope_.Is("result is returned"));
}

TEST_F(CacheMissTest, KeyboardInterruptInTheLoggerIsRaised) {
  scope_.Run(R"(
def interrupt(record):
  raise KeyboardInterrupt
records.emit = interrupt
returned = dispatch(key(physical), [])
try:
  wrap(lambda: returned)()
  raised = False
except KeyboardInterrupt:
  raised = True
)");
  EXPECT_TRUE(scope_.Is("raised"));
}

TEST_F(CacheMissTest, KeyboardInterruptInTheRuleIsRaised) {
  EXPECT_EQ(CountsOf(R"(
registry = PyTreeRegistry()
def interrupt(_):
  raise KeyboardInterrupt
registry.register_node(Key, interrupt, None)
try:
  wrap(returns_key, registry=registry)()
  raised = False
except KeyboardInterrupt:
  raised = True
)"),
            (Counts{1, 0, 0, 0, 0}));
  EXPECT_TRUE(scope_.Is("raised"));
}

TEST_F(CacheMissTest, InnerFunctionIsReachable) {
  EXPECT_TRUE(scope_.Is("wrap(returns_key).__wrapped__ is returns_key"));
  EXPECT_TRUE(scope_.Is(
      "repr(wrap(len)) == '<jaxlib CacheMiss of <built-in function len>>'"));
}

TEST_F(CacheMissTest, PicklesAsTheInnerFunction) {
  EXPECT_TRUE(scope_.Is("pickle.loads(pickle.dumps(wrap(len))) is len"));
  EXPECT_TRUE(scope_.Is("b'_pjit' not in pickle.dumps(wrap(len))"));
}

TEST_F(CacheMissTest, CanNotBeMadeFromPython) {
  scope_.Run(R"(
try:
  type(wrap(len))()
  error = None
except TypeError as e:
  error = str(e)
)");
  EXPECT_EQ(scope_.Repr("error"),
            "\"cannot create 'jaxlib._pjit.CacheMiss' instances\"");
}

TEST_F(CacheMissTest, ItsTypeCannotBeChangedFromPython) {
  scope_.Run(R"(
try:
  type(wrap(len)).__call__ = len
  error = None
except TypeError as e:
  error = str(e)
)");
  EXPECT_EQ(scope_.Repr("error"),
            "\"cannot set '__call__' attribute of immutable type "
            "'jaxlib._pjit.CacheMiss'\"");
}

TEST_F(CacheMissTest, AnArgumentThatIsStaticElsewhereIsDynamicByItsPosition) {
  scope_.Run("k = key(logical)\nresult = wrap(returns_key, (0,))(k, k)");
  EXPECT_TRUE(scope_.Is("result[1].out_shardings[0] is logical"));
}

TEST_F(CacheMissTest, WhatItDecidedHoldsForLaterDispatches) {
  scope_.Run(R"(
other = NamedSharding(mesh, P('one'))
f = wrap(returns_key)
results = [f(key(logical)), f(key(other)), wrap(returns_key)(key(other))]
)");
  EXPECT_TRUE(
      scope_.Is("[r[1].out_shardings[0] for r in results] == "
                "[logical, logical, other]"));
}

TEST_F(CacheMissTest, IsCollectedInACycle) {
  scope_.Run(R"(
def cycle():
  def cache_miss():
    return wrapped
  wrapped = wrap(cache_miss)
  return weakref.ref(wrapped)
gc.disable()
ref = cycle()
alive_before = ref() is not None
gc.collect()
gc.enable()
)");
  EXPECT_TRUE(scope_.Is("alive_before"));
  EXPECT_TRUE(scope_.Is("ref() is None"));
}

TEST_F(CacheMissTest, HoldsOneReferenceToEachArgumentAndDropsIt) {
  scope_.Run(R"(
def cache_miss():
  return None, None
held = [cache_miss, PyTreeRegistry(), CacheKey(None, ())]
def counts():
  return [sys.getrefcount(o) for o in held]
before = counts()
f = wrap(cache_miss, registry=held[1], global_cache_key=held[2])
during = counts()
for _ in range(100):
  f()
called = counts()
del f
after = counts()
)");
  EXPECT_TRUE(scope_.Is("during == [n + 1 for n in before]"));
  EXPECT_TRUE(scope_.Is("called == during"));
  EXPECT_TRUE(scope_.Is("after == before"));
}

TEST_F(CacheMissTest, FailureLeaksNoReference) {
  scope_.Run(R"(
returned = dispatch(key(physical), [])
f = wrap(lambda: returned)
f()
before = sys.getrefcount(returned), sys.getrefcount(returned[0])
for _ in range(100):
  f()
after = sys.getrefcount(returned), sys.getrefcount(returned[0])
)");
  EXPECT_TRUE(scope_.Is("after == before"));
}

// Python's allocators, which fail from the `countdown`th allocation on, once or
// for good.
class FailingAllocator {
 public:
  FailingAllocator(int countdown, bool for_good)
      : countdown_(countdown), for_good_(for_good) {
    for (int domain = 0; domain < kDomains; ++domain) {
      PyMem_GetAllocator(static_cast<PyMemAllocatorDomain>(domain),
                         &stock_[domain].allocator);
      stock_[domain].owner = this;
      PyMemAllocatorEx failing = {&stock_[domain], Malloc, Calloc, Realloc,
                                  Free};
      PyMem_SetAllocator(static_cast<PyMemAllocatorDomain>(domain), &failing);
    }
  }
  ~FailingAllocator() {
    for (int domain = 0; domain < kDomains; ++domain) {
      PyMem_SetAllocator(static_cast<PyMemAllocatorDomain>(domain),
                         &stock_[domain].allocator);
    }
  }

  bool has_failed() const { return has_failed_; }

 private:
  static constexpr int kDomains = 3;
  struct Domain {
    PyMemAllocatorEx allocator;
    FailingAllocator* owner;
  };

  bool Fails() {
    if (countdown_ > 0) {
      --countdown_;
      return false;
    }
    bool fails = for_good_ || !has_failed_;
    has_failed_ = true;
    return fails;
  }
  static void* Malloc(void* context, size_t size) {
    Domain* domain = static_cast<Domain*>(context);
    if (domain->owner->Fails()) return nullptr;
    return domain->allocator.malloc(domain->allocator.ctx, size);
  }
  static void* Calloc(void* context, size_t count, size_t size) {
    Domain* domain = static_cast<Domain*>(context);
    if (domain->owner->Fails()) return nullptr;
    return domain->allocator.calloc(domain->allocator.ctx, count, size);
  }
  static void* Realloc(void* context, void* block, size_t size) {
    Domain* domain = static_cast<Domain*>(context);
    if (domain->owner->Fails()) return nullptr;
    return domain->allocator.realloc(domain->allocator.ctx, block, size);
  }
  static void Free(void* context, void* block) {
    Domain* domain = static_cast<Domain*>(context);
    domain->allocator.free(domain->allocator.ctx, block);
  }

  int countdown_;
  bool for_good_;
  bool has_failed_ = false;
  Domain stock_[kDomains];
};

class OutOfMemoryTest : public CacheMissTest,
                        public testing::WithParamInterface<bool> {};

// Whichever allocation fails, the call returns the result of stock or of the
// rule, and never raises an error of its own.
TEST_P(OutOfMemoryTest, LeavesTheDispatchToStock) {
  scope_.Run(R"(
returned = dispatch([key(physical), array(logical)], [logical, logical])
class CacheMiss:
  def __call__(self, k):
    return returned
f = wrap(CacheMiss().__call__)
argument = key(logical)
f(argument)
)");
  nb::object call = scope_.Get("f");
  nb::object argument = scope_.Get("argument");
  nb::object returned = scope_.Get("returned");
  PyObject* args[] = {argument.ptr()};
  int left_to_stock = 0;
  bool has_failed = true;
  for (int countdown = 0; has_failed; ++countdown) {
    Counts before = Now();
    PyObject* result;
    {
      FailingAllocator allocator(countdown, /*for_good=*/GetParam());
      result = PyObject_Vectorcall(call.ptr(), args, 1, nullptr);
      has_failed = allocator.has_failed();
    }
    if (result == nullptr) {
      // Python had no memory for the frame of the dispatch function.
      EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_MemoryError)) << countdown;
      PyErr_Clear();
      continue;
    }
    if (result == returned.ptr()) {
      EXPECT_EQ(Now().left_to_stock - before.left_to_stock, 1u) << countdown;
      ++left_to_stock;
    } else {
      EXPECT_EQ(Now().tables - before.tables, 1u) << countdown;
    }
    Py_DECREF(result);
  }
  EXPECT_GT(left_to_stock, 10);
}

INSTANTIATE_TEST_SUITE_P(All, OutOfMemoryTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "ForGood" : "Once";
                         });

TEST_F(CacheMissTest, CountersAddUpOverThreads) {
  constexpr int kThreads = 8, kCalls = 200;
  nb::object call = scope_.Get("wrap(returns_key)");
  Counts before = Now();
  {
    nb::gil_scoped_release release;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        nb::gil_scoped_acquire acquire;
        for (int n = 0; n < kCalls; ++n) call();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  Counts after = Now();
  EXPECT_EQ(after.slow_dispatches - before.slow_dispatches, kThreads * kCalls);
  EXPECT_EQ(after.physical_entries - before.physical_entries,
            kThreads * kCalls);
}

}  // namespace
}  // namespace jax

int main(int argc, char** argv) {
  return jax::RunAllTestsWithPython(argc, argv);
}
