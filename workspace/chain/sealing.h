// Seals workspaces whose files nobody can write to any more (layers/seal/seal.h): at a stop, or
// when the last mount closes. A seal lets the next start say that the files are intact.
#pragma once

#include "base/single_flight.h"
#include "workspace/chain/integrity.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

class Sealing {
 public:
  Sealing(Context& context, Repositories& repositories, IntegrityCheck& integrity);
  ~Sealing();

  // Of a sandbox that just ended. Empty if a transfer still holds the mounts: sealed when it ends.
  IntegrityCheck::Taken at_stop(const state_db::WorkspaceRow& row);
  void seal_unsealed();                            // stopped ones that lost their seal
  void accept(const state_db::WorkspaceRow& row);  // a person confirms the current files
  // syncfs if anything ran or was kept: bounds the loss in a power cut.
  void sync_active();

 private:
  void request(base::WorkspaceId id);
  void seal_at_rest(base::WorkspaceId id);

  Context& context_;
  Repositories& repositories_;
  IntegrityCheck& integrity_;
  base::SingleFlight flights_;  // last member: its work uses the others
};

}  // namespace moorage::workspace
