"""What every command of the lab needs: rows, tables, charts, a page, progress, pieces, a queue manager.

Standard library only. It measures nothing by itself: that is for the scripts beside this folder.
Reading order: rows, chart, page (what comes out); progress, pieces (how a long run goes on);
machine, queue_manager, wire, getter, slow_disk (what is measured with).
"""
