// Any Linux machine that `ssh` reaches. A "machine" is the sandbox's directory on that host, so
// making one only makes DIR, and ending one runs `moorage-outpost remove` there. Nothing is written
// outside DIR. Each call is one ssh connection.
//
// Settings: base::SshSettings. DIR is by default ~/.moorage, or /var/tmp/.moorage-UID where the
// home directory cannot be used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "link/driver.h"
#include "link/drivers/ssh_child.h"

namespace moorage::link {

class SshDriver : public Driver {
 public:
  explicit SshDriver(const DriverOptions& options);

  Machine make(const Labels& labels, Deadline deadline) override;
  // Of a host: whether the sandbox is there, its outpost says.
  Machine reach(const Labels& labels, Deadline deadline) override { return make(labels, deadline); }
  std::vector<Machine> find(const Labels& labels, Deadline deadline) override;
  MachineState state(const Machine& machine, Deadline deadline) override;
  void extend(const Machine&, std::chrono::seconds, Deadline) override {}
  void end(const Machine& machine, Deadline deadline) override;
  std::unique_ptr<Run> run(const Machine& machine, const std::vector<std::string>& argv,
                           Deadline deadline) override;
  std::unique_ptr<Run> run_at_once(const std::vector<std::string>& argv) override;
  void put(const Machine& machine, const File& file, Deadline deadline) override;

 private:
  std::string directory(Deadline deadline);
  bool put_once(const File& file, Deadline deadline);
  // Runs a script of POSIX sh there; returns its standard output, at most 1 MiB.
  std::string script(const std::string& text, const std::vector<std::string>& arguments,
                     Deadline deadline);

  SshTarget target_;
  std::string place_;
  std::string directory_;  // once known
};

}  // namespace moorage::link
