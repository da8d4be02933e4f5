#include "backends/cgroups/cgroups.h"

#include <catch2/catch.hpp>

#include "backends/engine/container_cgroups.h"
#include "backends/host_image.h"
#include "backends/probe.h"
#include "backends/registry.h"
#include "base/error.h"
#include "base/os/files.h"
#include "sandbox_fixture.h"

using namespace moorage;
using backends::parse_cgroup_mounts;

TEST_CASE("a host with only cgroup v2 keeps everything in the unified hierarchy") {
  const auto found = parse_cgroup_mounts(
      "26 22 0:23 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  CHECK(found.unified == "/sys/fs/cgroup");
  CHECK(found.memory_v1.empty());
  CHECK(found.kind() == "v2");
}

TEST_CASE("v1 controllers of a hybrid host are found, including joint ones") {
  const auto found = parse_cgroup_mounts(
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 master:2 - cgroup cgroup "
      "rw,cpu,cpuacct\n"
      "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  CHECK(found.unified == "/sys/fs/cgroup/unified");
  CHECK(found.memory_v1 == "/sys/fs/cgroup/memory");
  CHECK(found.pids_v1 == "/sys/fs/cgroup/pids");
  CHECK(found.cpuset_v1 == "/sys/fs/cgroup/cpuset");
  CHECK(found.cpuacct_v1 == found.cpu_v1);
  CHECK(found.all_v1().size() == 4);  // one of them has two controllers
  const backends::SandboxCgroup group(found, "m-sb_1");
  using Shown = std::vector<std::pair<std::string, std::string>>;
  CHECK(group.shown() ==
        Shown{{"/sys/fs/cgroup/memory/moorage/m-sb_1/cmd", "/sys/fs/cgroup/memory"},
              {"/sys/fs/cgroup/cpu,cpuacct/moorage/m-sb_1", "/sys/fs/cgroup/cpu"},
              {"/sys/fs/cgroup/cpu,cpuacct/moorage/m-sb_1", "/sys/fs/cgroup/cpuacct"},
              {"/sys/fs/cgroup/cpuset/moorage/m-sb_1", "/sys/fs/cgroup/cpuset"},
              {"/sys/fs/cgroup/pids/moorage/m-sb_1/cmd", "/sys/fs/cgroup/pids"}});
  CHECK(found.cpu_v1 == "/sys/fs/cgroup/cpu,cpuacct");
  CHECK(found.kind() == "v1-hybrid");
}

TEST_CASE("a mount table without cgroups is reported as none") {
  CHECK(parse_cgroup_mounts("27 1 254:0 / / rw - ext4 /dev/vda rw\nnonsense\n").kind() == "none");
}

TEST_CASE("an unknown backend is refused, listing the known ones") {
  const tests::SandboxFixture store("fake");
  backends::BackendOptions options;
  options.images_directory = store.store() + "/images";
  backends::Registry registry(options);
  try {
    registry.get("vmware");
    FAIL("found");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::not_found);
    CHECK(error.hint().find("lxc") != std::string::npos);
  }
}

TEST_CASE("backend process must be allowed, and otherwise says why") {
  const tests::SandboxFixture store("fake");
  backends::BackendOptions options;
  options.name_prefix = "moorage-none-";
  options.images_directory = store.store() + "/images";
  options.launch_program = LAUNCH_PROGRAM;
  options.warden_program = WARDEN_PROGRAM;
  options.egress_program = EGRESS_PROGRAM;
  const auto can = backends::Registry(options).get("process").capabilities();
  CHECK_FALSE(can.usable);
  CHECK(can.reason.find("not allowed") != std::string::npos);
}

TEST_CASE("the probe accepts this host, in sentences, and leaves nothing in the store") {
  tests::SandboxFixture sandboxes("fake");
  const auto before = base::list_directory(sandboxes.store());
  backends::ProbeOptions options;
  options.store = sandboxes.store();
  for (const backends::Check& check : backends::probe_host(options)) {
    CAPTURE(check.name, check.text, check.hint);
    CHECK_FALSE(check.text.empty());
    CHECK((check.ok || !check.hint.empty()));
    if (geteuid() == 0 && tests::available(sandboxes)) CHECK(check.ok);
  }
  CHECK(base::list_directory(sandboxes.store()) == before);
}

TEST_CASE("a kernel that is too old or has a known hole is reported (10)") {
  using backends::kernel_fault;
  CHECK_FALSE(kernel_fault("6.1.0-18-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1"));
  CHECK_FALSE(kernel_fault("6.1.9", "#1 SMP"));
  CHECK_FALSE(kernel_fault("6.18.5+", "#1 SMP"));
  CHECK_FALSE(kernel_fault("7.0.0", ""));
  for (const auto& [release, version] :
       {std::pair("5.10.0-28-amd64", "#1 SMP Debian 5.10.209-2"), std::pair("6.0.12", ""),
        std::pair("6.1.0-2-amd64", "#1 SMP Debian 6.1.7-1"), std::pair("6.1.8", "#1"),
        std::pair("garbage", "")}) {
    CAPTURE(release);
    const auto fault = kernel_fault(release, version);
    REQUIRE(fault);
    CHECK(fault->first.find(release) != std::string::npos);
    CHECK_FALSE(fault->second.empty());
  }
}

TEST_CASE("the probe shows the line that uses the sandboxes' ids") {
  backends::ProbeOptions options;
  options.store = "/";
  options.sandbox_first_id = 0;  // root's range
  options.sandbox_id_slots = 1;  // without ids that adduser assigned in /etc/subuid
  bool found = false;
  for (const backends::Check& check : backends::probe_host(options)) {
    if (check.name != "ids") continue;
    found = true;
    CHECK_FALSE(check.ok);
    CHECK(check.text.find("root:") != std::string::npos);
  }
  CHECK(found);
}

TEST_CASE("the skeleton of image host has the listed files and none of the host's secrets") {
  tests::SandboxFixture sandboxes("fake");
  backends::HostImage image(sandboxes.store() + "/images");
  const std::string root = image.ensure();
  CHECK(image.ensure() == root);
  for (const char* missing : {"etc/shadow", "etc/gshadow", "etc/machine-id", "etc/ssh",
                              "etc/ssl/private", "etc/docker"}) {
    CAPTURE(missing);
    CHECK_FALSE(base::path_exists(root + "/" + missing));
  }
  CHECK(base::read_file(root + "/etc/passwd").find("user:x:1000:1000") != std::string::npos);
  CHECK(base::read_file(root + "/etc/passwd") != base::read_file("/etc/passwd"));
  CHECK(base::read_file(root + "/etc/gitconfig") == "[safe]\n\tdirectory = *\n");
  CHECK(base::read_file(root + "/etc/ld.so.cache", 64 << 20) ==
        base::read_file("/etc/ld.so.cache", 64 << 20));
  CHECK(base::path_exists(root + "/bin"));
}

TEST_CASE("a path in an engine's namespace leads to a place below /sys, or nowhere") {
  using backends::place_inside;
  const std::string ours = "/moorage/m-sb_1/cmd";
  CHECK(place_inside("/docker/1f", ours, "/sys/fs/cgroup") == "/sys/moorage/m-sb_1/cmd");
  CHECK(place_inside("/system.slice/docker-1f.scope", ours, "/sys/fs/cgroup") ==
        "/sys/moorage/m-sb_1/cmd");
  CHECK(place_inside("/docker/1f", ours, "/sys/fs/cgroup/memory") == "/sys/fs/moorage/m-sb_1/cmd");
  CHECK(place_inside("/docker/1f", ours, "/sys/fs/moorage/m-sb_1/cmd") ==
        "/sys/fs/moorage/moorage/m-sb_1/cmd");
  CHECK(place_inside("/docker", ours, "/sys/fs/cgroup") == "/sys/fs/moorage/m-sb_1/cmd");
  CHECK(place_inside("/moorage/engines/1f", ours, "/sys/fs/cgroup") == "/sys/m-sb_1/cmd");
  CHECK(place_inside("/docker", ours, "/sys/fs/cgroup/memory").empty());  // next to the mounts
  CHECK(place_inside("/a/b/c", ours, "/sys/fs/cgroup").empty());          // at the root
  CHECK(place_inside("/a/b/c/d", ours, "/sys/fs/cgroup").empty());
  CHECK(place_inside("/", ours, "/sys/fs/cgroup").empty());
}
