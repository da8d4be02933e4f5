// A Storage that forwards every call, so that a test can override one of them.
#pragma once

#include <string>

#include "layers/overlay.h"

namespace moorage::layers {

struct ForwardingStorage : Storage {
  explicit ForwardingStorage(Storage& real) : real_(real) {}
  std::string name() const override { return real_.name(); }
  void make_layer(base::LayerId layer) override { real_.make_layer(layer); }
  void sync_layer(base::LayerId layer) override { real_.sync_layer(layer); }
  bool clones_layer(base::LayerId layer) override { return real_.clones_layer(layer); }
  void clone_layer(base::LayerId from, base::LayerId to) override { real_.clone_layer(from, to); }
  void remove_layer(base::LayerId layer) override { real_.remove_layer(layer); }
  DiskQuota& quota() override { return real_.quota(); }
  std::string layer_path(base::LayerId layer) const override { return real_.layer_path(layer); }
  ActiveMounts mount(const Chain& chain, uint32_t first_host_id, MountRoom room) override {
    return real_.mount(chain, first_host_id, room);
  }
  base::Fd bind_files(const std::string& path, uint32_t first_host_id) override {
    return real_.bind_files(path, first_host_id);
  }
  base::Fd bind_read_only(const std::string& path, uint32_t first_host_id) override {
    return real_.bind_read_only(path, first_host_id);
  }

 private:
  Storage& real_;
};

}  // namespace moorage::layers
