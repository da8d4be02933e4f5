#include "workspace/repositories/imported_work.h"

#include <sstream>

namespace moorage::workspace {

std::string ImportedWork::subject() const {
  return repo.str() + " " + head_commit + " " + work_commit;
}

ImportedWork ImportedWork::parse(const std::string& subject) {
  std::istringstream words(subject);
  std::string id;
  ImportedWork work;
  words >> id >> work.head_commit >> work.work_commit;
  work.repo = base::RepoId::parse(id).value();
  return work;
}

}  // namespace moorage::workspace
