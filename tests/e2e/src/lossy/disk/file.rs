//! A file's pages: those that are synced, and those that are only written.
//!
//! Not here: names and free space. Invariant: a page that is not synced is kept or lost whole.

use std::collections::BTreeMap;

use crate::chance::Chance;

use super::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

type Page = Box<[u8; PAGE_BYTES]>;

#[derive(Default)]
pub(super) struct File {
    synced: BTreeMap<u64, Page>,
    synced_bytes: u64,
    /// Of the synced pages, only bytes below this are still seen (a truncation hides the rest).
    visible_bytes: u64,
    written: BTreeMap<u64, Page>,
    /// As programs see it.
    pub(super) bytes: u64,
}

impl File {
    fn page(&self, number: u64) -> Page {
        if let Some(page) = self.written.get(&number) {
            return page.clone();
        }
        let mut page = self.synced.get(&number).cloned().unwrap_or_else(blank);
        let seen = within_page(self.visible_bytes.saturating_sub(number * PAGE));
        page.iter_mut().skip(seen).for_each(|byte| *byte = 0);
        page
    }

    pub(super) fn read(&self, offset: u64, count: u64) -> Vec<u8> {
        let end = self.bytes.min(offset + count);
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let page = self.page(at / PAGE);
            let from = within_page(at % PAGE);
            let upto = within_page(end - (at / PAGE) * PAGE);
            bytes.extend(page.iter().take(upto).skip(from));
            at = (at / PAGE + 1) * PAGE;
        }
        bytes
    }

    /// What a power cut leaves that keeps nothing.
    pub(super) fn durable(&self) -> Vec<u8> {
        let blank = blank();
        let pages = 0..self.synced_bytes.div_ceil(PAGE);
        let pages = pages.flat_map(|at| self.synced.get(&at).unwrap_or(&blank).iter().copied());
        pages.take(usize::try_from(self.synced_bytes).unwrap_or(usize::MAX)).collect()
    }

    pub(super) fn durable_bytes(&self) -> u64 {
        self.synced_bytes
    }

    /// Numbers of pages that are written and not synced.
    pub(super) fn unsynced_pages(&self) -> Vec<u64> {
        self.written.keys().copied().collect()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = within_page(at % PAGE);
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - from));
            let mut page = self.page(at / PAGE);
            page.iter_mut().skip(from).zip(now).for_each(|(to, byte)| *to = *byte);
            self.written.insert(at / PAGE, page);
            at += now.len() as u64;
            rest = later;
        }
        self.bytes = self.bytes.max(at);
    }

    pub(super) fn resize(&mut self, bytes: u64) {
        if bytes < self.bytes {
            let last = self.page(bytes / PAGE);
            self.written.retain(|number, _| *number < bytes / PAGE);
            self.visible_bytes = self.visible_bytes.min(bytes);
            if !bytes.is_multiple_of(PAGE) {
                let mut page = last;
                page.iter_mut().skip(within_page(bytes % PAGE)).for_each(|byte| *byte = 0);
                self.written.insert(bytes / PAGE, page);
            }
        }
        self.bytes = bytes;
    }

    pub(super) fn sync(&mut self) {
        let pages: Vec<u64> = self.synced.keys().copied().collect();
        for number in pages {
            if (number + 1) * PAGE > self.visible_bytes {
                let page = self.page(number);
                self.synced.insert(number, page);
            }
        }
        self.synced.append(&mut self.written);
        let end = self.bytes;
        self.synced.retain(|number, _| number * PAGE < end);
        self.synced_bytes = end;
        self.visible_bytes = end;
    }

    pub(super) fn cut_power(&mut self, keep_percent: u64, chance: &mut Chance) {
        let truncated = self.visible_bytes < self.synced_bytes && chance.percent(keep_percent);
        let mut bytes = if truncated { self.visible_bytes } else { self.synced_bytes };
        if truncated {
            self.synced.retain(|number, _| number * PAGE < bytes);
        }
        for (number, page) in std::mem::take(&mut self.written) {
            if chance.percent(keep_percent) {
                bytes = bytes.max(self.bytes.min((number + 1) * PAGE));
                self.synced.insert(number, page);
            }
        }
        if self.bytes > bytes && chance.percent(keep_percent) {
            bytes = self.bytes;
        }
        self.bytes = bytes;
        self.synced_bytes = bytes;
        self.visible_bytes = bytes;
    }
}

fn blank() -> Page {
    Box::new([0; PAGE_BYTES])
}

fn within_page(bytes: u64) -> usize {
    usize::try_from(bytes.min(PAGE)).unwrap_or(PAGE_BYTES)
}
