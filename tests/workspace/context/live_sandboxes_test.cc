#include "workspace/context/live_sandboxes.h"

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"

using namespace moorage;
using namespace moorage::workspace;
using std::chrono::milliseconds;

namespace {

constexpr base::WorkspaceId kWorkspace{7};
constexpr milliseconds kLong{20'000};

SharedMounts some_mount() {
  SharedMounts mounted;
  mounted.mounts.tree = base::open_file("/", O_PATH | O_DIRECTORY);
  return mounted;
}

base::Code code_of_wait(LiveSandboxes& active, milliseconds patience) {
  try {
    active.wait_unmounted(kWorkspace, patience);
  } catch (const base::Error& error) {
    return error.code();
  }
  FAIL("nothing was thrown");
  return base::Code::internal;
}

}  // namespace

TEST_CASE("a mount in use is shared with every later user") {
  LiveSandboxes active;
  int made = 0;
  const auto mount = [&] {
    made += 1;
    return some_mount();
  };
  auto one = active.at_rest(kWorkspace, mount, kLong);
  auto two = active.at_rest(kWorkspace, mount, kLong);
  CHECK(one == two);
  CHECK(made == 1);
  CHECK(code_of_wait(active, milliseconds(1)) == base::Code::conflict);
  one.reset();
  CHECK(code_of_wait(active, milliseconds(1)) == base::Code::conflict);
  two.reset();
  active.wait_unmounted(kWorkspace, kLong);
  CHECK(active.at_rest(kWorkspace, mount, kLong));
  CHECK(made == 2);
}

TEST_CASE("the daemon closes its mounts of running sandboxes when it ends") {
  int descriptor = -1;
  {
    LiveSandboxes active;
    auto running = std::make_shared<LiveSandbox>();
    running->workspace = kWorkspace;
    running->mounted = active.at_rest(kWorkspace, some_mount, kLong);
    descriptor = running->mounted->mounts.tree.get();
    active.set_running(std::move(running));
    REQUIRE(fcntl(descriptor, F_GETFD) != -1);
  }
  CHECK(fcntl(descriptor, F_GETFD) == -1);
}

TEST_CASE("waiting for the unmount ends after the last user left, and never before") {
  LiveSandboxes active;
  for (int round = 0; round < 200; ++round) {
    const int before = base::open_file("/", O_PATH | O_DIRECTORY).get();  // the next free number
    auto mounted = active.at_rest(kWorkspace, some_mount, kLong);
    const int descriptor = mounted->mounts.tree.get();
    REQUIRE(descriptor == before);
    std::thread user([last = std::move(mounted)]() mutable { last.reset(); });
    active.wait_unmounted(kWorkspace, kLong);
    CHECK(fcntl(descriptor, F_GETFD) == -1);
    user.join();
  }
}

TEST_CASE("destruction releases the mounts of running sandboxes") {
  base::Pipe pipe = base::make_pipe();
  {
    LiveSandboxes active;
    SharedMounts mounted;
    mounted.mounts.tree = std::move(pipe.write_end);
    auto running = std::make_shared<LiveSandbox>();
    running->workspace = kWorkspace;
    running->mounted = active.share(kWorkspace, std::move(mounted));
    active.set_running(std::move(running));
  }
  CHECK(base::wait_readable(pipe.read_end.get(), 0));  // end of file: the other end is closed
}

namespace {

std::shared_ptr<const LiveSandbox> running_in(LiveSandboxes& active, int64_t number) {
  auto running = std::make_shared<LiveSandbox>();
  running->workspace = base::WorkspaceId{number};
  running->sandbox = base::SandboxId{number};
  running->mounted = active.share(running->workspace, some_mount());
  active.set_running(running);
  return running;
}

}  // namespace

TEST_CASE("a slow freeze of one sandbox does not block another one") {
  LiveSandboxes active;
  running_in(active, 1);
  running_in(active, 2);
  auto slow = active.begin_exchange(active.running(base::WorkspaceId{1}));
  REQUIRE(slow);
  std::promise<std::shared_ptr<const LiveSandbox>> answer;
  auto other = answer.get_future();
  std::thread asks([&] { answer.set_value(active.by_sandbox(base::SandboxId{2})); });
  const bool waits = other.wait_for(kLong / 4) != std::future_status::ready;
  slow.reset();  // before any check can fail: the thread may wait for it
  asks.join();
  CHECK_FALSE(waits);
  CHECK(other.get()->sandbox == base::SandboxId{2});
}

TEST_CASE("a sandbox can be queried without its mounts during their exchange") {
  LiveSandboxes active;
  running_in(active, 1);
  const auto slow = active.begin_exchange(active.running(base::WorkspaceId{1}));
  REQUIRE(slow);
  const auto seen = active.without_mounts(base::SandboxId{1});
  REQUIRE(seen);
  CHECK_FALSE(seen->mounted);
  CHECK_FALSE(active.without_mounts(base::SandboxId{2}));
}

TEST_CASE("listing all sandboxes neither waits for an exchange nor blocks one") {
  LiveSandboxes active;
  running_in(active, 1);
  running_in(active, 2);
  const auto seen = active.all();
  auto slow = active.begin_exchange(active.running(base::WorkspaceId{1}));
  REQUIRE(slow);
  std::promise<std::vector<LiveSandbox>> answer;
  auto all = answer.get_future();
  std::thread asks([&] { answer.set_value(active.all()); });
  const bool waits = all.wait_for(kLong / 4) != std::future_status::ready;
  slow.reset();  // before any check can fail: the thread may wait for it
  asks.join();
  CHECK_FALSE(waits);
  const auto both = all.get();
  REQUIRE(both.size() == 2);
  CHECK(both[0].sandbox == base::SandboxId{1});
  CHECK(both[1].sandbox == base::SandboxId{2});
  CHECK_FALSE(both[0].mounted);
}

TEST_CASE("slow unmounts of one user do not delay those of another") {
  std::promise<void> release;
  const auto released = release.get_future().share();
  LiveSandboxes active;
  active.on_rest([released](base::WorkspaceId workspace) {
    if (workspace.value > 1) released.wait();
  });
  for (int64_t number = 2; number < 10; ++number) {
    SharedMounts slow = some_mount();
    slow.owner = 1;
    active.share(base::WorkspaceId{number}, std::move(slow));
  }
  SharedMounts other = some_mount();
  other.owner = 2;
  active.share(base::WorkspaceId{1}, std::move(other));
  CHECK_NOTHROW(active.wait_unmounted(base::WorkspaceId{1}, kLong));
  release.set_value();
}

TEST_CASE("an exchange of mounts waits briefly for our own work in the sandbox") {
  LiveSandboxes active;
  auto looks = running_in(active, 1);
  std::thread look([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    looks.reset();
  });
  CHECK(active.begin_exchange(active.running(base::WorkspaceId{1})));
  look.join();
  const auto stays = active.running(base::WorkspaceId{1});
  CHECK_FALSE(active.begin_exchange(active.running(base::WorkspaceId{1})));
}
